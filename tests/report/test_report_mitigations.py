"""The chapter on mitigations: charts, tables, findings and page say what the frame of bias transfer says."""

from dataclasses import replace

import polars as pl
import pytest
from chart_data import drawn, names, valid, values
from read_back import section
from synthetic_audit import synthetic_inputs
from synthetic_table import GRID
from synthetic_transfer import TRIED, transfer_frame

from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.report import AbsentCell, Reading, findings, render
from plumbline.report.chapters.mitigations import (
    CHAPTER,
    VERDICTS,
    adjustment,
    adjustment_findings,
    changes,
    overview_listing,
    transfer_listing,
)
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


def charts(frame):
    return changes(tried(frame, dataset=FAIRFACE, model=MODEL), model=MODEL, dataset=FAIRFACE)


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


def test_a_dot_for_every_shown_row_with_its_numbers(transfer):
    skew, share = charts(transfer)
    # Six axes; three harm rates, nine rates of probes, six costs; the logit adjustments have probes and three costs.
    assert len(drawn(skew)) == 3 * 6 and len(drawn(share)) == 3 * (3 + 9 + 6) + 2 * (9 + 3)
    (row,) = (r for r in drawn(skew) if r["of"] == "bias_prompts, race skew in crime labels")
    assert {"value": "−0.50", "interval": "−0.58 to −0.42", "before → after": "0.80 → 0.30", "q": "0.002",
            "n": "2,100", "verdict": "improved"}.items() <= row.items()  # fmt: skip
    assert (row["filled"], row["low"], row["high"]) == (-0.5, -0.58, -0.42)
    assert names(skew, "panels") == [condition for condition, _, _ in TRIED]
    assert [text for text, bold in zip(names(share), names(share, "headings")) if bold] == [
        block.title for block in BLOCKS[1:]
    ]
    assert valid(skew) and valid(share)


def test_what_was_not_judged_is_said_so(transfer):
    skew, share = charts(transfer)
    assert values(skew, "words") == ["not judged"] * 2 * 6
    assert values(share, "words") == ["not judged"] * 2 * (3 + 3)


def test_verdicts_differ_in_shape_and_fill(transfer):
    assert len({series.shape for series in VERDICTS.values()}) == len(VERDICTS)
    found = [record for chart in charts(transfer) for record in drawn(chart)]
    assert {record["verdict"] for record in found} == set(VERDICTS)
    for record in found:
        assert ("hollow" in record) == (record["verdict"] == "no evidence")
        assert record["series"] == VERDICTS[record["verdict"]].name


def test_undefined_is_said_in_words_and_not_drawn(transfer):
    gone = transfer.with_columns(
        value=pl.when(pl.col("event") == "crime").then(float("nan")).otherwise("value"),
        verdict=pl.when(pl.col("event") == "crime").then(pl.lit("undefined")).otherwise("verdict"),
    )
    assert [values(chart, "words").count("undefined") for chart in charts(gone)] == [3 * 2, 3]


def test_from_one_mitigation_to_many():
    for count in (1, 7):
        many = tuple((f"saner-{i}", "saner", {}) for i in range(count))
        assert sum(len(drawn(chart)) for chart in charts(transfer_frame(FEW[:1], (FAIRFACE,), many))) == count * 24


def test_nothing_to_draw_is_nothing(transfer):
    assert charts(transfer.clear()) == []
    assert charts(transfer.filter(pl.col("definition") == "smoothed")) == []


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


def test_the_page_tells_it_all(mitigated):
    chapter = section(mitigated, "mitigations")
    assert f"<h3>{FAIRFACE}: every model</h3>" in chapter and f"<h3>{FAIRFACE}: {MODEL}</h3>" in chapter
    assert f"<p>For {MODEL} on {FAIRFACE} use Bias Prompts: it lowers" in chapter
    assert chapter.count("Every comparison in numbers") == 4
    assert chapter.count("the logit adjustment, probe by probe</h3>") == 2
    method = section(mitigated, "method")
    for term in ("Bias transfer", "Improved, worsened, no evidence", "Logit adjustment", "Bias Prompts", "SANER"):
        assert f"<dt>{term}</dt>" in method


def test_a_part_a_model_after_the_overview(adjusted):
    inputs = replace(synthetic_inputs(), transfer=transfer_frame(datasets=(FAIRFACE,)))
    overview, *parts = CHAPTER.parts(adjusted.clear(), inputs)
    assert [row[0] for row in overview.tables[0][1].rows] == [part.title.split(": ")[1] for part in parts]
    assert all((len(part.pictures), len(part.details)) == (1, 1) for part in parts)
    assert all(f"use {name}" in part.notes[0] for part, name in zip(parts, ["Bias Prompts"] * 7))


def test_hostile_ids_are_text(adjusted, bare):
    evil = "<script>{{ 7 * 7 }}\u202e"
    frame = transfer_frame(FEW[:1], (FAIRFACE,)).with_columns(
        condition=pl.col("condition").replace("bias_prompts", evil), method=pl.col("method").replace("saner", evil)
    )
    made = render(adjusted.clear(), replace(bare, transfer=frame))
    assert "<script>{{" not in made and "\u202e" not in made
    assert "use Bias Prompts (&lt;script&gt;{{ 7 * 7 }}\\u202e)" in made


def test_without_transfer_there_are_the_adjustments_alone(adjusted, bare):
    (first, _) = CHAPTER.parts(adjusted, bare)
    assert first.title == f"{FAIRFACE}: the logit adjustment, probe by probe"
    assert [len(first.pictures), len(first.details), len(first.listings), len(first.tables)] == [1, 1, 0, 0]
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
    table = metric_frame(rows)
    for name, said in (("ours", "80% before, 85% after"), ("more_images", "60% before, 65% after")):
        assert values(adjustment(table, (MODEL,), FAIRFACE, "trident", condition=name), "value") == [said]


def test_what_leaks_is_drawn_last_with_a_note_and_is_no_finding(adjusted, bare, table):
    (first, _) = CHAPTER.parts(adjusted, bare)
    assert LEAKING[0] in first.details[-1].title and LEAKING[0] not in first.pictures[0].title
    assert first.notes[-1].startswith("logit_adjustment_released: test accuracy had a say")
    told = {f.topic[3] for f in adjustment_findings(table, Reading())}
    assert told == {"logit_adjustment"}
    told = {f.topic[3] for f in findings(table, Reading(leaking=())) if f.topic[0] == "adjustment"}
    assert told == {"logit_adjustment", "logit_adjustment_released"}


def test_a_mitigation_that_was_not_tried_is_no_cell_without_numbers(adjusted, bare):
    left_out = AbsentCell(model="clip", dataset="faces", reason="saner was not tried: no rows to train on")
    page = render(adjusted, replace(bare, absent=(), not_tried=(left_out,)))
    assert "saner was not tried" in page and "without numbers: " not in page
