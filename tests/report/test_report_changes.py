"""What changed since the audit before, as a page and first in the report."""

import io
from dataclasses import replace

import polars as pl
import pytest
from rich.console import Console

from orchestration.compared import print_changes
from plumbline.metrics.paired import comparisons
from plumbline.provenance.diff import DIFF_SCHEMA, FLIP_SCHEMA, headline_definitions, judged
from plumbline.reasons import reason
from plumbline.report import render
from plumbline.report.changes import LONGEST, Changes, change_title
from plumbline.report.html import render_changes

HOSTILE = "<script>alert(1)</script>"
PICTURE = "data:image/jpeg;base64," + "A" * 4000


def difference(**columns):
    row = {
        "model_old": "clip", "model_new": "clip", "metric": "max_skew", "definition": "mean_over_pairs",
        "dataset": "faces", "suite": "crime", "attribute": "race", "event": "crime", "condition": "before",
        "statistic": "estimate",
        "value_old": 0.5, "value_new": 1.5, "value": 1.0, "ci_low": 0.8, "ci_high": 1.2, "p": 0.001, "q": 0.002,
        "n_old": 90, "n_new": 90, "worse": 1.0, "compared": "paired",
    }  # fmt: skip
    return row | columns


LIMITS = {"max_skew": 0.25}
MILD = {"value_old": 1.0, "value_new": 1.1, "value": 0.1, "ci_low": 0.05, "ci_high": 0.2, "worse": 0.1}


def changes(rows, *, flips=(), **more):
    frame = pl.DataFrame(list(rows), schema=DIFF_SCHEMA, orient="row")
    flipped = pl.DataFrame(list(flips), schema=FLIP_SCHEMA, orient="row")
    return Changes("audit aaa", "this audit", judged(frame, LIMITS), flipped, **more)


def flip(image, margin, *, suite="crime", text="a photo of a thief"):
    return {
        "dataset": "faces", "model_old": "clip", "model_new": "clip", "suite": suite, "image_id": image,
        "path": f"{image}.jpg", "text_old": "a photo of a man", "text_new": text, "category_old": "demographic",
        "category_new": "crime", "margin": margin,
    }  # fmt: skip


def test_regressions_are_named_first_in_the_report(narrow, inputs):
    found = changes([difference()], causes={"faces|clip": ["the checkpoint"]})
    page = render(narrow, replace(inputs, changes=found))
    at = [page.index(part) for part in ('class="changed"', 'id="scorecard"', '<section id="changes"', 'id="models"')]
    assert at == sorted(at)
    assert "1 number is worse than before by more than is allowed" in page and "+1.0 [0.8–1.2]" in page
    cause = page.partition("Where the changes of each cell come from")[2].partition("</table>")[0]
    assert "faces|clip" in cause and "the checkpoint" in cause


def test_a_report_without_an_audit_before_says_nothing_of_changes(page):
    assert 'id="changes"' not in page and "last audit" not in page


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "Every number is the same."),
        ([difference(value=0.0, worse=0.0, q=None)], "that was compared is the same."),
        ([difference(q=0.5)], "Nothing is worse than before by more than is allowed"),
    ],
)
def test_that_nothing_got_worse_is_said(rows, said):
    assert said in render_changes(changes(rows), title="What changed")


def test_numbers_without_evidence_are_shown_by_how_near_they_come():
    rows = [difference(q=(9 - i) / 10, event=f"e{i}", **MILD) for i in range(9)]
    rows += [difference(q=0.99, condition="after"), difference(q=0.9, value=0.0, worse=0.0, event="same"), *rows[:3]]
    title, listing = changes(rows).listings[-1]
    assert title == "No evidence of a change, the smallest q first"
    assert [row[0].split(", ")[1] for row in listing.rows][:4] == ["e8", "e7", "e6", "e5"]
    assert (len(listing.rows), listing.note) == (10, "The first 10 of 12.")
    assert "+0.10 [0.05" in in_the_terminal(changes(rows[:1]))


LEFT_OUT = "new: 8 of 9 pairs undefined: no event in one group of the pair"


@pytest.mark.parametrize("after", [23.9, float("nan")])
def test_skews_of_other_pairs_than_before_are_told_by_the_smoothed_one(after):
    plain = difference(value_new=after, value=after - 0.5, worse=after - 0.5, reason=LEFT_OUT)
    smoothed = difference(
        definition="smoothed", value_old=27.8, value_new=22.6, value=-5.2, ci_low=-8.0, ci_high=-3.0, worse=-5.2
    )
    elsewhere = difference(attribute="gender", definition="smoothed", value=9.0, worse=9.0)
    found = changes([plain, smoothed, elsewhere])
    assert (found.regressed, found.state) == (0, "clear")
    told = found.differences.drop_nulls("verdict")
    assert told.select("attribute", "definition", "verdict").rows() == [("race", "smoothed", "better")]
    assert change_title(told.row(0, named=True)) == "max skew, smoothed, crime labels, by race"
    # Where the smoothed one is none either, the other stays, with its reason.
    assert changes([plain, smoothed | {"value": float("nan")}]).differences["definition"][0] == "mean_over_pairs"


@pytest.mark.parametrize("name", ["undefined_pairs", "undefined_pairs_of_side"])
def test_pairs_that_are_left_out_are_known_by_what_their_reasons_say(name):
    assert comparisons._PAIRS_LEFT_OUT in str(reason(name, side="new", undefined=8, pairs=9))


UNKNOWN = "crime on faces|clip, since its prompts changed"


def in_the_terminal(found):
    terminal = Console(file=io.StringIO(), width=100)
    print_changes(found, console=terminal)
    return terminal.file.getvalue()


@pytest.mark.parametrize("said_by", [in_the_terminal, lambda found: render_changes(found, title="x")])
def test_what_was_not_compared_stands_in_place_of_the_all_clear(said_by):
    other = difference(compared="other prompts", value=float("nan"), worse=None, q=None)
    nothing = said_by(changes([other], not_compared=[UNKNOWN]))
    assert UNKNOWN in nothing and "is worse than before" not in nothing
    some = said_by(changes([other, difference(q=0.5)], not_compared=[UNKNOWN]))
    assert UNKNOWN in some and "Nothing that was compared is worse than before" in some
    worse = said_by(changes([other, difference()], not_compared=[UNKNOWN]))
    assert UNKNOWN in worse and "worse than before by more than is allowed" in worse.lower()


UNTESTED = {"ci_low": float("nan"), "ci_high": float("nan"), "p": None, "q": None, "compared": "as if independent"}


@pytest.mark.parametrize("said_by", [in_the_terminal, lambda found: render_changes(found, title="x")])
def test_what_moved_away_and_cannot_be_tested_is_told(said_by):
    """A gap that was 0 in every answer has no interval, and the gap after it no test."""
    beyond = difference(**UNTESTED)
    gap = {"definition": headline_definitions()["salary_gap"], **UNTESTED}
    pay = difference(metric="salary_gap", value_old=0.0, value_new=2e4, value=2e4, worse=2e4, **gap)
    nearer = difference(metric="rating_gap", value_old=2.0, value_new=1.0, value=-1.0, worse=-1.0, **gap)
    found = changes([pay, nearer, difference(q=0.5)])
    assert found.state == "clear" and "rating gap" not in said_by(found)
    assert "1 number is worse within that, or of a metric without a limit, but could not be tested" in found.summary
    assert "salary gap" in said_by(found) and "not tested" in said_by(found)
    found = changes([beyond, pay])
    assert found.state == "unknown" and "Nothing that was tested is worse" in found.summary
    assert [title for title, _ in found.listings] == [
        "Worse by more than is allowed, but not tested",
        "Worse, within what is allowed or without a limit, but not tested",
    ]
    assert changes([beyond, difference(event="tested")]).state == "worse"


@pytest.mark.parametrize(
    ("old", "new", "p", "verdict"),
    [
        (0.31, -1.15, 1e-6, "worse"),
        (-1.15, 0.31, 1e-6, "better"),
        (0.31, -1.15, 0.02, "neither better nor worse"),
        (-0.48, 0.29, 1e-4, "neither better nor worse"),
        (0.31, 1.15, 0.02, "worse"),
        (0.4, -0.4, 1e-9, "neither better nor worse"),
    ],
)
def test_what_changed_its_sign_is_worse_only_where_there_is_evidence_of_its_distance(old, new, p, verdict):
    away = abs(new) - abs(old)
    effect = {"metric": "sc_weat_effect", "definition": headline_definitions()["sc_weat_effect"]}
    row = difference(**effect, value_old=old, value_new=new, value=new - old, worse=away, p=p, q=2 * p)
    assert changes([row]).differences["verdict"].to_list() == [verdict]


def test_a_reason_of_several_lines_is_shown_as_lines():
    found = changes([difference()], absent=["faces|clip: gone\n  where:    logits"])
    told, page = in_the_terminal(found), render_changes(found, title="x")
    assert "image by image: faces|clip: gone\n  where:    logits" in told and "\\n" not in told
    assert "faces|clip: gone<br>" in page


def test_flips_are_shown_in_turn_with_their_pictures_or_why_there_is_none():
    found = changes(
        [difference()],
        flips=[*(flip(f"crime{i}", 9 - i) for i in range(20)), flip("agency", 0.1, suite="agency")],
        previews={"crime0": (PICTURE, None), "agency": (None, "gone: the file is not there any more")},
    )
    assert [row["image_id"] for row in found.shown_flips][:3] == ["agency", "crime0", "crime1"]
    page = render_changes(found, title="What changed")
    assert PICTURE in page and "gone: the file is not there any more" in page
    assert "21 answers are another text" in page


def test_the_terminal_says_where_changes_come_from():
    terminal = Console(file=io.StringIO(), width=100)
    print_changes(changes([difference()], causes={"faces|clip": ["the checkpoint", "prompts"]}), console=terminal)
    told = terminal.file.getvalue().partition("Where the changes come from")[2]
    assert told.split()[:3] == ["Cell", "What", "changed"] and "the checkpoint, prompts" in told


def test_hostile_text_is_text():
    found = changes(
        [difference(group=HOSTILE), difference(dataset=HOSTILE, value_old=None)],
        flips=[flip("x", 1.0, text=HOSTILE)],
        causes={HOSTILE: ["the checkpoint"]},
        absent=[HOSTILE],
    )
    page = render_changes(found, title=HOSTILE)
    assert HOSTILE not in page and "&lt;script&gt;" in page
    charts = found.pictures
    assert charts and all(HOSTILE in str(chart.spec) for chart in charts), "as data, which the page packs"


def test_what_got_worse_is_told_before_what_got_better_and_what_appeared_last():
    rows = [
        difference(event="new", value_old=float("nan"), value=float("nan"), q=None, reason="old: too few images"),
        difference(event="gone", value_new=None, value=None, q=None, compared="one side only"),
        difference(event="better", value_old=1.5, value_new=0.5, value=-1.0, ci_low=-1.2, ci_high=-0.8, worse=-1.0),
        difference(event="mild", **MILD),
        difference(event="little", **(MILD | {"ci_low": 0.09})),
        difference(event="worse"),
        difference(event="worst", value_new=2.5, value=2.0, ci_low=0.1, ci_high=2.5, worse=2.0),
        difference(event="by chance", q=0.2),
        difference(event="mitigated", condition="saner"),
        difference(event="aside", definition="smoothed"),
        difference(
            event="moved", metric="outcome_proportion", definition="top1", worse=None, compared="as if independent"
        ),
    ]
    found = changes(rows)
    titles = [(title, [row[0] for row in listing.rows]) for title, listing in found.listings]
    assert [title.split()[0].strip(",:") for title, _ in titles] == [
        "Worse", "Worse", "Better", "Changed", "Appeared", "Vanished", "No",
    ]  # fmt: skip
    assert [[what.split(", ")[1] for what in whats] for _, whats in titles[:3]] == [
        ["worst", "worse"], ["little", "mild"], ["better"],
    ]  # fmt: skip
    assert [row.split(", ")[1] for row in titles[-1][1]] == ["by chance"]
    assert found.regressed == 2
    assert "2 numbers are worse than before by more than is allowed: the first is" in found.summary
    assert f"{titles[0][1][0]} on " in found.summary
    assert "1 number is better" in found.summary and "As if independent" in found.how


@pytest.mark.parametrize("said_by", [in_the_terminal, lambda found: render_changes(found, title="x")])
def test_a_number_that_was_undefined_appears_with_the_reason_and_is_no_change(said_by):
    rows = [
        difference(
            value_old=float("nan"), value=float("nan"), q=None, worse=float("nan"), reason="old: too few images"
        ),
        difference(event="gone", value_new=None, value=None, q=None, compared="one side only", worse=None),
    ]
    said = said_by(changes(rows))
    assert "old: too few images" in said and "undefined →" not in said and "Worse" not in said
    assert "There is no evidence that any number changed" in " ".join(said.split())


def test_a_share_is_told_in_percent_and_its_change_in_points_that_add_up():
    found = changes(
        [
            difference(
                metric="parity_difference", definition="max_minus_min", value_old=0.1722, value_new=0.2304,
                value=0.0582, ci_low=0.0386, ci_high=0.0782, worse=0.0582,
            )
        ]
    )  # fmt: skip
    assert found.listings[0][1].rows[0][3:6] == ("17.2%", "23.0%", "+5.8 points [3.9–7.8]")


def test_long_listings_are_cut_and_say_so():
    [(_, listing)] = changes([difference(event=f"event {i}") for i in range(LONGEST + 3)]).listings
    assert len(listing.rows) == LONGEST and str(LONGEST + 3) in listing.note


def test_the_models_are_named_in_rows_only_where_they_differ_among_rows():
    alone, apart = changes([difference(model_new="siglip")]), changes([difference()])
    assert "Model" not in alone.listings[0][1].heads and apart.listings[0][1].rows[0][1] == "clip"
