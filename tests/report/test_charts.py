"""The shared charts: marks at their places, evidence by shape and fill, foreign text as data, the same bytes."""

import io
import json
import math
import subprocess
import sys

import pytest
from chart_data import drawn, names, records, valid, values
from PIL import Image

from plumbline.catalog.schema import metric_frame
from plumbline.report.charts.chart import BLUE, PNG_LIMIT, Chart
from plumbline.report.charts.dots import Dot, Rows, Series, dots
from plumbline.report.charts.estimates import estimates
from plumbline.report.charts.heat import Cell, heat
from plumbline.report.numbers import number

EVIL = "</script><script>alert(1)</script> datum.x \u202e\x07"
SHOWN = "</script><script>alert(1)</script> datum.x \\u202e\\u0007"


def of(*marks, **options):
    rows = Rows.plain(dict.fromkeys(one.row for one in marks))
    return dots("a name", "Title", "How to read it.", marks=marks, rows=rows, **options)


def test_an_estimate_stands_in_the_column_of_what_it_is_evidence_of():
    kinds = ("evidence", "no_evidence", "evidence_of_none", None)
    chart = of(*(Dot(row="m", value=float(i), state=kind) for i, kind in enumerate(kinds)))
    assert values(chart, "filled") == [0, 3]
    assert (values(chart, "hollow"), values(chart, "barred")) == ([1], [2])
    key = chart.spec["title"]["text"][-1]
    assert "filled: evidence" in key and "hollow" in key and "with a bar" in key
    assert valid(chart)


def test_no_key_to_evidence_where_nothing_was_tested():
    assert "title" not in of(Dot(row="m", value=1.0)).spec


def test_an_interval_beyond_the_scale_is_cut_and_ends_in_an_arrow():
    chart = of(Dot(row="a", value=1.0, low=-900.0, high=1e6), Dot(row="b", value=2.0, low=1.5, high=2.5))
    one, other = drawn(chart)
    assert one["over"] == one["high"] < 10 and one["under"] == one["low"] > -10
    assert not {"over", "under"} & set(other)
    assert (other["low"], other["high"]) == (1.5, 2.5)
    assert drawn(chart, "end")[-1]["end"] == one["high"]


def test_an_extreme_value_is_a_number_at_the_end_of_the_scale():
    marks = [Dot(row=str(place), value=place / 10) for place in range(20)]
    for extreme, column in ((15.0, "past"), (-15.0, "short")):
        chart = of(*marks, Dot(row="far", value=extreme), extremes=False)
        *others, far = drawn(chart, "filled", "past", "short")
        assert far["beyond"] == number(extreme) and abs(far[column]) < 3 and "filled" not in far
        assert all("filled" in one for one in others) and valid(chart)
    assert "filled" in drawn(of(*marks, Dot(row="far", value=15.0)))[-1]
    assert "past" not in str(of(*marks, Dot(row="near", value=4.0), extremes=False).spec)


def test_an_undefined_value_is_said_in_words_and_has_no_dot():
    chart = of(Dot(row="a", value=math.nan, words="not judged"), Dot(row="b", value=1.0))
    assert [record["words"] for record in drawn(chart, "at")] == ["not judged"]
    assert len(drawn(chart)) == 1


def test_rows_stand_under_headings_in_panels_and_series_side_by_side():
    rows = Rows((("race", ("x", "y")), ("gender", ("x",))))
    marks = [
        Dot(row="x", heading="gender", panel="p", series="s", value=1.0),
        Dot(row="x", heading="race", panel="q", series="t", value=2.0),
        Dot(row="elsewhere", heading="race", panel="q", series="t", value=3.0),
    ]
    chart = dots("n", "t", "d", marks=marks, rows=rows, panels=("p", "q"), series=(Series("s"), Series("t", "#D55E00")))
    assert names(chart) == ["race", "x", "y", "gender", "x"]
    assert names(chart, "headings") == [True, False, False, True, False]
    first, second = drawn(chart)
    assert (first["panel"], round(first["y"])) == (0, 4) and first["y"] < 4
    assert (second["panel"], round(second["y"])) == (1, 1) and second["y"] > 1
    assert valid(chart)


def test_a_second_reading_a_span_a_line_and_a_band():
    chart = of(Dot(row="a", value=0.2, second=0.3, span=(0.1, 0.4)), line=0.25, band=(-0.05, 0.05), unit="share")
    (record,) = drawn(chart)
    assert (record["second"], record["from"], record["to"]) == (0.3, 0.1, 0.4)
    assert values(chart, "line") == [0.25]
    assert valid(chart)


def test_panels_with_scales_of_their_own():
    chart = of(
        *(Dot(row="a", panel=name, value=value) for name, value in (("p", 1.0), ("q", 100.0))),
        panels=("p", "q"), own_scales=True, line={"p": 0.5},
    )  # fmt: skip
    ends = {panel: [r["end"] for r in records(chart) if r["panel"] == panel and "end" in r] for panel in (0, 1)}
    assert ends[0][1] < 2 < 50 < ends[1][1]
    assert chart.spec["resolve"]["scale"]["x"] == "independent"
    assert valid(chart)


def test_nothing_to_draw_is_none():
    assert of() is None
    assert heat("n", "t", "d", cells=[], rows=Rows.plain("a"), columns=Rows.plain("b")) is None


def test_a_cell_is_where_its_row_and_column_are_dark_where_large_and_framed_where_evident():
    rows, columns = Rows.plain(("a", "b")), Rows((("one", ("x",)), ("two", ("x", "y"))))
    cells = [
        Cell(row="a", column="x", over="one", value=0.1, text="10"),
        Cell(row="b", column="y", over="two", value=0.9, text="90", framed=True, tip={"value": "0.90"}),
        Cell(row="b", column="x", over="two", value=math.nan, text="–"),
    ]
    chart = heat("n", "t", "d", cells=cells, rows=rows, columns=columns)
    low, high, undefined = (record for record in records(chart) if "text" in record)
    assert (low["y"], high["y"]) == (0, 1) and low["x"] < undefined["x"] < high["x"]
    assert "dark" not in low and high["dark"] and high["framed"]
    assert (high["shade"], high["value"]) == (0.9, "0.90")
    assert "shade" not in undefined
    assert [r["over"] for r in records(chart) if "over" in r] == ["one", "two"]
    assert valid(chart)


def test_of_many_models_those_with_the_largest_values_have_a_panel():
    own = {"metric": "m", "definition": "d", "dataset": "x", "condition": "before", "statistic": "estimate"}
    rows = metric_frame([own | {"model": f"m{i}", "group": "a", "value": float(-i)} for i in range(14)])
    chart = estimates("n", "t", "d.", rows, row="group", panel="model")
    assert sorted(values(chart)) == [float(-i) for i in range(13, 1, -1)]
    assert chart.description == "d. Of 14 models the 12 with the largest values are drawn."


def test_foreign_text_is_shown_as_data_and_stands_in_no_expression():
    marks = [Dot(row=EVIL, panel=EVIL, series=EVIL, value=1.0, tip={"of": EVIL}), Dot(row="b", series="s", value=2.0)]
    chart = dots(
        EVIL, EVIL, EVIL, marks=marks, rows=Rows(((EVIL, ()), ("", (EVIL, "b")))), panels=(EVIL,),
        series=(Series(EVIL), Series("s")), axis=EVIL,
    )  # fmt: skip
    assert chart.title == SHOWN
    assert set(chart.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-x")
    assert drawn(chart)[0]["of"] == SHOWN
    assert valid(chart)
    table = heat(EVIL, EVIL, EVIL, cells=[Cell(row=EVIL, column=EVIL, over=EVIL, value=1.0, text=EVIL)],
                 rows=Rows.plain((EVIL,)), columns=Rows(((EVIL, (EVIL,)),)))  # fmt: skip
    assert valid(table)


@pytest.fixture(scope="module")
def chart():
    marks = [Dot(row=f"m{i}", value=i / 9, low=i / 10, high=i / 8, state="evidence") for i in range(9)]
    return of(*marks, axis="a scale", series=(Series("", BLUE),))


def test_png_is_small_coloured_and_has_the_same_bytes_in_a_fresh_process(chart):
    png = chart.png
    assert len(png) < PNG_LIMIT
    with Image.open(io.BytesIO(png)) as image:
        assert image.width > 300
        assert any(b - r > 100 for _, (r, _, b) in image.convert("RGB").getcolors(1 << 16))
    again = (
        "import sys, json; from plumbline.report.charts.chart import Chart;"
        "sys.stdout.buffer.write(Chart('a', 'Title', '', json.load(sys.stdin)).png)"
    )
    given = json.dumps(chart.spec).encode()
    fresh = subprocess.run([sys.executable, "-c", again], input=given, capture_output=True, check=True)
    assert fresh.stdout == png


def test_figure_is_an_altair_chart(chart):
    import altair as alt

    assert isinstance(chart.figure, alt.FacetChart)
    assert isinstance(Chart("n", "t", "d", {"mark": "point"}).figure, alt.Chart)


def test_characters_that_no_xml_has_are_replaced_and_the_picture_is_drawn():
    spec = {
        "data": {"values": [{"x": "a\x1b\ufffe\ud800b"}]},
        "mark": "text",
        "encoding": {"text": {"field": "x"}, "x": {"field": "x", "title": "t\x00"}},
    }
    chart = Chart("n", "t", "d", spec)
    assert chart.spec["data"]["values"] == [{"x": "a\ufffd\ufffd\ufffdb"}]
    assert Image.open(io.BytesIO(chart.png)).width
