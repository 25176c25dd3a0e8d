import pytest

from orchestration.audit_run import Work


def test_what_is_left_goes_by_the_work_that_is_left():
    work = Work.of([900.0, 50.0, 50.0])
    assert work.left(ended=1, done={0: 90.0}) == pytest.approx(10.0)
    assert work.left(ended=2, done={0: 90.0, 1: 5.0}) == pytest.approx(5.0)
    assert work.left(ended=3, done={0: 90.0, 1: 5.0, 2: 5.0}) is None


@pytest.mark.parametrize("weights", [[None, 50.0, 50.0], [0.0, 50.0, 50.0], [None] * 3])
def test_where_the_work_of_one_is_not_known_all_count_alike(weights):
    assert Work.of(weights).left(ended=1, done={0: 4.0}) == pytest.approx(8.0)


def test_one_that_failed_says_nothing_of_the_others():
    work = Work.of([900.0, 50.0, 50.0])
    assert work.left(ended=1, done={}) is None
    assert work.left(ended=2, done={1: 5.0}) == pytest.approx(5.0)
