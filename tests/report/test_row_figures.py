"""Figures of rows under headings: places, scales, and marks beyond them."""

import pytest
from read_back import tips

from plumbline.report.figures.marks import Mark
from plumbline.report.figures.panels import RowPanel, Rows, Series, ends_of, row_figure


def mark(y, value, low, high):
    return Mark(y=y, value=value, low=low, high=high, tip=str(value))


def test_rows_under_headings_and_marks_beyond_the_scale():
    rows = Rows((("describe", ("a", "b")), ("story", ("a",))))
    assert rows.lines == [("describe", None), ("describe", "a"), ("describe", "b"), ("story", None), ("story", "a")]
    assert rows.place("a", "story") == 4
    marks = [mark(1, 0.2, 0.1, 0.3), mark(2, float("nan"), float("nan"), float("nan")), mark(4, 0.3, -9.0, 9.0)]
    low, high = ends_of(marks)
    assert -0.5 < low < 0 and 0.6 <= high < 1
    picture = row_figure(
        "x", "t", "d", rows=rows, panels=[RowPanel("p", [Series(marks, "#000000")], (low, high))], axis="a"
    )
    assert len(tips(picture.svg)) == 2 and "> undefined<" in picture.svg
    assert row_figure("x", "t", "d", rows=rows, panels=[RowPanel("p", [Series([], "#0")], (0, 1))], axis="a") is None


def test_scales_begin_where_ratings_do_and_at_zero_elsewhere():
    marks = [mark(0, 7.0, 6.8, 7.2), mark(1, 7.5, 7.4, 7.6)]
    assert 6.4 < ends_of(marks, zero=False)[0] < 6.8 and ends_of(marks)[0] == 0
    alike = ends_of([mark(0, 8.0, 8.0, 8.0)], zero=False)
    assert alike[0] < 8.0 < alike[1]
    assert ends_of([]) == pytest.approx((0.0, 0.005), abs=0.2)
