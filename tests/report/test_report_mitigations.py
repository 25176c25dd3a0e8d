"""The chapter on mitigations: figure, tables, findings and page say what the frame of bias transfer says."""

import re
from dataclasses import replace

import polars as pl
import pytest
from read_back import tips
from synthetic_audit import synthetic_inputs
from synthetic_table import GRID
from synthetic_transfer import TRIED, transfer_frame

from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.report import AbsentCell, Reading, findings, render
from plumbline.report.chapters.mitigations import (
    CHAPTER,
    HEADS,
    adjustment_findings,
    adjustment_listing,
    overview_listing,
    transfer_listing,
    verdict_matrix,
)
from plumbline.report.figures.mitigations import PANELS, STYLES, mitigation_figures
from plumbline.report.finding import headlines
from plumbline.report.recommendation import transfer_findings
from plumbline.report.rows import where
from plumbline.report.transfer import BLOCKS, block_of, tried

FEW = (GRID[0], GRID[6])
MODEL, FAIRFACE = GRID[0][0], "planted-fairface"
LEAKING = ("logit_adjustment_released",)


@pytest.fixture(scope="module")
def transfer():
    return transfer_frame(FEW)


@pytest.fixture(scope="module")
def own(transfer):
    return tried(transfer, dataset=FAIRFACE, model=MODEL, leaking=LEAKING)


@pytest.fixture(scope="module")
def adjusted(table):
    """Return a table of which little but this chapter can be made."""
    return table.filter(pl.col("definition") == "test_rows", pl.col("suite") == "trident")


@pytest.fixture(scope="module")
def bare(inputs):
    return replace(inputs, provenance=inputs.provenance.clear(), planted_truth=None)


@pytest.fixture(scope="module")
def mitigated(adjusted, bare, transfer):
    return render(adjusted, replace(bare, transfer=transfer))


def drawn(frame):
    candidates = tried(frame, dataset=FAIRFACE, model=MODEL)
    return mitigation_figures(candidates, model=MODEL, dataset=FAIRFACE)


def cell(page, anchor):
    return page.split(f'<h2 id="{anchor}">')[1].split("</section>")[0]


def test_mitigations_stand_in_the_order_of_the_methods(own):
    assert [one.condition for one in own] == [condition for condition, _, _ in TRIED]
    assert [one.name for one in own][1:4] == [
        "Logit adjustment (logit_adjustment_released)", "Bias Prompts", "Prompt Array (prompt_array-gender)",
    ]  # fmt: skip
    assert [one.leaking for one in own] == [False, True, False, False, False]


def test_rows_stand_in_blocks_and_further_readings_apart(own):
    order = [block.name for block in BLOCKS]
    places = [order.index(block_of(row)) for row in own[2].rows]
    assert places == sorted(places) and set(places) == set(range(len(BLOCKS)))
    assert {row["definition"] for row in own[2].readings} == {"smoothed", "max_minus_min"}
    assert {row["definition"] for row in own[2].of("axis")} == {"mean_over_pairs"}


def test_a_mark_after_for_every_drawn_row_with_its_numbers(transfer):
    (picture,) = drawn(transfer)
    said = tips(picture.svg)
    # Six axes, three harm rates, nine rates of probes, six costs; the logit adjustments have probes and three costs.
    assert len(said) == 3 * (6 + 3 + 9 + 6) + 2 * (9 + 3)
    text = "bias_prompts, race skew in crime labels: 0.80 → 0.30, change −0.50 [−0.58 to −0.42], q = 0.002, n = 2,100"
    assert f"{text}: improved" in [tip.replace("\u00a0", " ") for tip in said]
    assert picture.svg.count(">not judged<") == 2 * 3


def test_verdicts_differ_in_shape_and_place():
    assert len({shape for _, shape in STYLES.values()}) == len(STYLES)
    places = {}
    for value in (-0.5, 0.0, 0.5):
        chosen = transfer_frame(FEW[:1], (FAIRFACE,), (("bias_prompts", "bias_prompts", {("race", "crime"): value}),))
        found = re.findall(r'<use x="([\d.]+)"[^>]*><title>([^<]*)</title>', drawn(chosen)[0].svg)
        places[value] = next(float(x) for x, tip in found if "race skew in crime" in tip)
    assert places[-0.5] < places[0.0]
    assert all(f": {verdict}" in " ".join(tips(drawn(transfer_frame(FEW[:1]))[0].svg)) for verdict in STYLES)


def test_the_interval_is_of_the_change_counted_from_before():
    frame = transfer_frame(FEW[:1], (FAIRFACE,), (("saner", "saner", {("race", "crime"): -0.4}),))
    frame = where(frame, event="crime", attribute="race", metric="max_skew", definition="mean_over_pairs")
    svg = drawn(frame)[0].svg
    lines = {
        width: (float(start), float(end))
        for start, end, width in re.findall(r'd="M ([\d.]+) [\d.]+ L ([\d.]+) [^>]*stroke-width: ([\d.]+)"', svg)
    }
    (before, after), (low, high) = lines["4.5"], lines["1.2"]
    assert before - after == pytest.approx(0.4 / 0.16 * (high - low), rel=0.01)
    assert (low + high) / 2 == pytest.approx(after, abs=0.02)


def test_undefined_is_said_in_words_and_not_drawn(transfer):
    gone = transfer.with_columns(
        value=pl.when(pl.col("event") == "crime").then(float("nan")).otherwise("value"),
        verdict=pl.when(pl.col("event") == "crime").then(pl.lit("undefined")).otherwise("verdict"),
    )
    (picture,) = drawn(gone)
    assert picture.svg.count("> undefined<") == 3 * (2 + 1)
    assert "undefined" in {row[4] for row in verdict_matrix(tried(gone, dataset=FAIRFACE, model=MODEL)).rows}


@pytest.mark.parametrize(("count", "pictures"), [(1, 1), (PANELS, 1), (PANELS + 1, 2)])
def test_from_one_mitigation_to_many(count, pictures):
    many = tuple((f"saner-{i}", "saner", {}) for i in range(count))
    made = drawn(transfer_frame(FEW[:1], (FAIRFACE,), many))
    assert len(made) == pictures and len({picture.name for picture in made}) == pictures
    assert sum(len(tips(picture.svg)) for picture in made) == count * 24


def test_nothing_to_draw_is_nothing(transfer):
    assert drawn(transfer.clear()) == []
    assert drawn(transfer.filter(pl.col("definition") == "smoothed")) == []


def test_the_matrix_gives_every_verdict_once(own):
    matrix = verdict_matrix(own)
    assert matrix.heads[2:] == tuple(condition for condition, _, _ in TRIED)
    found = {row[1]: row[2:] for row in matrix.rows}
    assert len(found) == len(matrix.rows) == max(len(one.rows) for one in own)
    assert found["race: crime labels"] == ("–", "–", "✓ improved", "✗ worsened", "no evidence")
    assert found["taken for a negative probe"] == ("✓ improved",) * 2 + ("no evidence",) * 3
    assert [row[0] for row in matrix.rows if row[0]] == [block.title for block in BLOCKS]


def test_the_list_holds_every_row_of_the_frame(transfer):
    rows = transfer.filter(model=MODEL, dataset=FAIRFACE)
    listing = transfer_listing(rows)
    assert len(listing.rows) == rows.height
    (row,) = [r for r in listing.rows if r[0] == "bias_prompts" and r[2] == "race: crime labels" and "mean" in r[3]]
    assert row[4:] == ("0.80 → 0.30", "−0.50", "−0.58 to −0.42", "0.002", "2,100", "✓ improved", "")


def test_the_overview_counts_axes_and_harm_rates(own):
    listing = overview_listing([own], [one.condition for one in own])
    assert listing.rows == [
        (MODEL, "bias_prompts", "not judged", "not judged", "2 better, 0 worse of 17",
         "1 better, 1 worse of 17", "0 better, 0 worse of 17"),
    ]  # fmt: skip


def test_findings_say_what_moves_and_what_helps(transfer):
    found = {(f.topic[2], f.model, f.dataset): f for f in transfer_findings(transfer, Reading())}
    assert len(found) == 4 * 2 * 2 and not any(name in LEAKING for name, _, _ in found)
    tones = {name: {f.tone for (n, _, _), f in found.items() if n == name} for name, _, _ in TRIED}
    assert tones == {
        "logit_adjustment": {"gain"}, "logit_adjustment_released": set(), "bias_prompts": {"gain"},
        "prompt_array-gender": {"cost"}, "saner": {"none"},
    }  # fmt: skip
    moved = found["prompt_array-gender", MODEL, FAIRFACE]
    assert "lowers gender skew in negative communion words by 0.10 (95% CI" in moved.sentence
    assert ", but raises race skew in crime labels by 0.40 (95% CI" in moved.sentence
    assert (moved.value_text, moved.interval_text, moved.q_text) == ("+0.40", "0.32–0.48", "0.002")
    assert "does not show that it changes nothing" in found["saner", MODEL, FAIRFACE].sentence
    assert transfer_findings(None, Reading()) == []


def test_a_cost_alone_is_told_as_one(transfer):
    costly = transfer.filter(pl.col("condition") == "bias_prompts").with_columns(
        verdict=pl.when(pl.col("definition") == "macro").then(pl.lit("worsened")).otherwise("verdict")
    )
    for frame, more in (
        (costly, ", but lowers zero-shot"),
        (costly.filter(kind="cost"), "Bias Prompts lowers zero-shot"),
    ):
        finding = transfer_findings(frame, Reading())[0]
        assert finding.tone == "cost" and finding.short == "Cost of bias_prompts" and more in finding.sentence


def test_what_only_worsens_or_cannot_be_said_is_told_so(transfer):
    worse = transfer.filter(condition="prompt_array-gender", verdict="worsened", dataset=FAIRFACE, model=MODEL)
    (finding,) = transfer_findings(worse, Reading())
    assert finding.tone == "cost" and finding.short == "Made worse by prompt_array-gender"
    gone = worse.with_columns(value=float("nan"), verdict=pl.lit("undefined"), reason=pl.lit("no pair"))
    (finding,) = transfer_findings(gone, Reading())
    assert finding.tone == "undefined" and "every comparison is undefined: no pair" in finding.sentence


def test_a_cost_is_told_beside_the_bias_that_is_moved(transfer):
    both = transfer.filter(condition="prompt_array-gender", model=MODEL, dataset=FAIRFACE).with_columns(
        verdict=pl.when(pl.col("kind") == "cost").then(pl.lit("worsened")).otherwise("verdict")
    )
    (finding,) = transfer_findings(both, Reading())
    assert "; it also costs: it lowers zero-shot accuracy (macro) by 0.4 points (95% CI" in finding.sentence
    assert finding.sentence.endswith(" and worsens 5 more.")


def test_headlines_count_the_models_that_get_worse(transfer):
    told = [f.sentence for f in headlines(transfer_findings(transfer, Reading()))]
    assert len(told) == 4 * 2
    (moved,) = [s for s in told if "prompt_array-gender" in s and FAIRFACE in s]
    assert moved.endswith("Of 2 models it makes something worse in 2 and only improves in 0.")


def test_the_page_tells_it_all(mitigated):
    section = cell(mitigated, "mitigations")
    assert f"<h3>{FAIRFACE}: every model</h3>" in section and f"<h3>{FAIRFACE}: {MODEL}</h3>" in section
    assert f"<p>For {MODEL} on {FAIRFACE}, use Bias Prompts." in section
    assert '<td class="k good">✓ improved</td>' in section and '<td class="k fail">✗ worsened</td>' in section
    assert section.count("Verdicts</h4>") == 4 and section.count("Every comparison in numbers") == 4
    assert section.count("the logit adjustment, probe by probe</h3>") == 2
    assert "makes it worse" in cell(mitigated, "findings").replace("mitigation makes it worse", "makes it worse")
    method = cell(mitigated, "method")
    for term in ("Bias transfer", "Improved, worsened, no evidence", "Logit adjustment", "Bias Prompts", "SANER"):
        assert f"<dt>{term}</dt>" in method
    assert 'id="adjustment"' not in mitigated


def test_many_models_are_folded_after_the_first(adjusted):
    inputs = replace(synthetic_inputs(), transfer=transfer_frame(datasets=(FAIRFACE,)))
    overview, *parts = CHAPTER.parts(adjusted.clear(), inputs)
    assert [row[0] for row in overview.tables[0][1].rows] == [part.title.split(": ")[1] for part in parts]
    assert [len(part.pictures) for part in parts] == [len(part.tables) for part in parts] == [1] * 3 + [0] * 4
    assert [len(part.details) for part in parts] == [0] * 3 + [1] * 4
    assert all("Verdicts" in [title for title, _ in part.tables + part.listings] for part in parts)
    assert all(f"use {name}" in part.notes[0] for part, name in zip(parts, ["Bias Prompts"] * 7))


def test_hostile_ids_are_text(adjusted, bare):
    evil = "<script>{{ 7 * 7 }}\u202e"
    frame = transfer_frame(FEW[:1], (FAIRFACE,)).with_columns(
        condition=pl.col("condition").replace("bias_prompts", evil), method=pl.col("method").replace("saner", evil)
    )
    made = render(adjusted.clear(), replace(bare, transfer=frame))
    assert "<script" not in made and "\u202e" not in made
    assert "use Bias Prompts (&lt;script&gt;{{ 7 * 7 }}\\u202e)" in made


def test_without_transfer_there_are_the_adjustments_alone(adjusted, bare):
    (first, _) = CHAPTER.parts(adjusted, bare)
    assert first.title == f"{FAIRFACE}: the logit adjustment, probe by probe"
    assert [len(first.pictures), len(first.details), len(first.listings), len(first.tables)] == [1, 1, 1, 0]
    for transfer in (None, transfer_frame().clear()):
        assert CHAPTER.parts(adjusted.clear(), replace(bare, transfer=transfer)) == []


def test_a_frame_without_the_schema_is_refused(inputs, transfer):
    with pytest.raises(MetricError, match=r"frame transfer of the report lacks columns(.|\n)*add verdict"):
        replace(inputs, transfer=transfer.drop("verdict"))


def gain_rows(condition, *, definition="test_rows", before=0.8, gain=0.05):
    base = {
        "model": MODEL, "dataset": FAIRFACE, "suite": "trident", "attribute": "race", "probe": "thief",
        "statistic": "mean", "definition": definition,
    }  # fmt: skip
    accuracy = base | {"metric": "macro_accuracy"}
    return [
        accuracy | {"condition": "before", "value": before},
        accuracy | {"condition": condition, "value": before + gain},
        base | {"metric": "macro_accuracy_gain", "condition": condition, "value": gain, "definition": "test_rows"},
    ]


def test_each_adjustment_is_compared_on_its_own_test_rows():
    rows = gain_rows("ours") + gain_rows("more_images", definition="test_rows_of_more_images", before=0.6)
    listing = adjustment_listing(metric_frame(rows), Reading(), (MODEL,), FAIRFACE, "trident")
    shown = {row[1]: dict(zip(HEADS, row)) for row in listing.rows}
    assert {name: (row["Before"], row["After"]) for name, row in shown.items()} == {
        "ours": ("80%", "85%"), "more_images": ("60%", "65%"),
    }  # fmt: skip


def test_what_leaks_is_listed_last_and_with_a_note_but_is_no_finding(table):
    listing = adjustment_listing(table, Reading(), (MODEL,), FAIRFACE, "trident")
    assert [row[1] for row in listing.rows if row[0] == MODEL] == ["logit_adjustment", *LEAKING]
    assert listing.note.startswith("logit_adjustment_released: test accuracy had a say")
    told = {f.topic[3] for f in adjustment_findings(table, Reading())}
    assert told == {"logit_adjustment"}
    told = {f.topic[3] for f in findings(table, Reading(leaking=())) if f.topic[0] == "adjustment"}
    assert told == {"logit_adjustment", "logit_adjustment_released"}


def test_a_mitigation_that_was_not_tried_is_no_cell_without_numbers(adjusted, bare, sketched):
    left_out = AbsentCell(model="clip", dataset="faces", reason="saner was not tried: no rows to train on")
    page = render(adjusted, replace(bare, absent=(), not_tried=(left_out,)))
    assert "saner was not tried" in page and "without numbers: " not in page
