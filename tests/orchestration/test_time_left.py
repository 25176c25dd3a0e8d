"""How long an audit still takes, from the items that have ended."""

import pytest

from orchestration.audit_run import Pace, Work
from orchestration.items import Item

BIG, SMALL, LAST = (Item("cells", f"{name}|m") for name in ("big", "small", "last"))
OF_WORDS = Item("answers", "m|slice")
WORK = {BIG: Work("cells", 900.0), SMALL: Work("cells", 50.0), LAST: Work("cells", 50.0)}


def pace(work=WORK, *, at_once=1, **seconds):
    made = Pace(work, at_once)
    for item in work:
        if (name := item.key.partition("|")[0]) in seconds:
            made.ended(item, seconds[name])
    return made


def test_what_is_left_goes_by_the_work_that_is_left():
    assert pace().left() is None
    assert pace(big=90.0).left() == pytest.approx(10.0)
    assert pace(big=90.0, small=5.0).left() == pytest.approx(5.0)
    assert pace(big=90.0, small=5.0, last=5.0).left() is None


@pytest.mark.parametrize("of_the_first", [None, 0.0])
def test_where_the_work_of_one_is_not_known_those_of_its_kind_count_alike(of_the_first):
    unknown = {**WORK, BIG: Work("cells", of_the_first)}
    assert pace({**unknown, OF_WORDS: Work("answers", 7.0)}).amounts == {BIG: 1, SMALL: 1, LAST: 1, OF_WORDS: 7}
    assert pace(unknown, big=4.0).left() == pytest.approx(8.0)


def test_one_that_failed_says_nothing_of_the_others():
    assert pace(big=None).left() is None
    assert pace(big=None, small=5.0).left() == pytest.approx(5.0)


def test_several_at_once_take_a_part_of_the_time_each():
    assert pace(at_once=2, last=5.0).left() == pytest.approx((90.0 + 5.0) / 2)
    assert pace(at_once=8, big=90.0, small=5.0).left() == pytest.approx(5.0), "one is worked on by one"


def test_of_another_kind_of_work_the_mean_is_expected():
    work = {**WORK, OF_WORDS: Work("answers", None)}
    assert pace(work, big=90.0, small=5.0, last=5.0).left() == pytest.approx(100.0 / 3)
