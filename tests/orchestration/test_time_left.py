import pytest

from orchestration.audit_run import Pace, alike_if_unknown
from orchestration.items import Item

BIG, SMALL, LAST = (Item("cells", f"{name}|m") for name in ("big", "small", "last"))
OF_WORDS = Item("answers", "m|slice")
WEIGHTS = {BIG: 900.0, SMALL: 50.0, LAST: 50.0}


def pace(weights=WEIGHTS, *, at_once=1, **seconds):
    made = Pace(weights, at_once)
    for item in weights:
        if (name := item.key.partition("|")[0]) in seconds:
            made.ended(item, seconds[name])
    return made


def test_what_is_left_goes_by_the_work_that_is_left():
    assert pace().left() is None
    assert pace(big=90.0).left() == pytest.approx(10.0)
    assert pace(big=90.0, small=5.0).left() == pytest.approx(5.0)
    assert pace(big=90.0, small=5.0, last=5.0).left() is None


@pytest.mark.parametrize("of_the_first", [None, 0.0])
def test_where_the_work_of_one_is_not_known_all_count_alike(of_the_first):
    weights = alike_if_unknown({**WEIGHTS, BIG: of_the_first, OF_WORDS: None})
    assert set(weights.values()) == {1.0}
    assert alike_if_unknown({**WEIGHTS, OF_WORDS: None}) == {**WEIGHTS, OF_WORDS: 1.0}


def test_one_that_failed_says_nothing_of_the_others():
    assert pace(big=None).left() is None
    assert pace(big=None, small=5.0).left() == pytest.approx(5.0)


def test_several_at_once_take_a_part_of_the_time_each():
    assert pace(at_once=2, last=5.0).left() == pytest.approx((90.0 + 5.0) / 2)
    assert pace(at_once=8, big=90.0, small=5.0).left() == pytest.approx(5.0), "one is worked on by one"


def test_of_another_kind_of_work_the_mean_is_expected():
    assert pace({**WEIGHTS, OF_WORDS: 1.0}, big=90.0, small=5.0, last=5.0).left() == pytest.approx(100.0 / 3)
