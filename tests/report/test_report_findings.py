"""Findings say what the rows say, with their uncertainty, and claim nothing more."""

import math
from dataclasses import replace

import polars as pl
import pytest
from scipy import stats
from scorecard_rows import UNSURE, answer, frame
from synthetic_table import GRID, planted_truth, synthetic_table

from plumbline.catalog.schema import metric_frame, row_ids
from plumbline.catalog.suites import load_suite
from plumbline.datasets.grouping import WITHOUT_GROUP_SCHEMA
from plumbline.errors import MetricError
from plumbline.reasons import reason
from plumbline.report import Reading, findings, findings_table, headlines, render
from plumbline.report.data import data_findings, dataset_notes, even_models, planted_coverage
from plumbline.report.finding import TONES, at_first
from plumbline.report.findings import adjusted_text, as_picked, headline_findings, picked_findings
from plumbline.report.front import audited
from plumbline.report.numbers import interval
from plumbline.report.sentences import in_sentences
from plumbline.report.vocabulary import sentence_start
from plumbline.statistics.power import COLUMNS

FAIR_ROW = {"model": "small-bazaar-6k", "dataset": "fairface", "condition": "before", "statistic": "estimate"}


def crime_rows(*, value=1.9, p=0.0005, q=0.004, reason=None, n=(300, 300), model="small-bazaar-6k"):
    groups = [("Black", 0.45, n[0]), ("White", 0.10, n[1])]
    base = FAIR_ROW | {"model": model, "suite": "crime", "event": "crime", "attribute": "race"}
    rows = [
        base | {"metric": "outcome_proportion", "definition": "top1", "group": g, "value": v, "n": m}
        for g, v, m in groups
    ]
    skew = {"metric": "max_skew", "definition": "mean_over_pairs", "value": value, "ci_low": 1.5, "ci_high": 2.4}
    return metric_frame([*rows, base | skew | {"p": p, "q": q, "n": sum(n), "reason": reason}])


def only(table, **reading):
    (finding,) = findings(table, Reading(**reading))
    return finding


def test_a_skew_is_told_with_its_interval_q_and_groups():
    table = crime_rows(reason=reason("undefined_pairs", undefined=2, pairs=21))
    finding = only(table)
    assert (finding.tone, finding.value_text, finding.interval_text) == ("bias", "1.9", "1.5–2.4")
    (told,) = in_sentences([finding], table, table, Reading())
    assert told.sentence.replace("\u00a0", " ") == (
        "On fairface, small-bazaar-6k gives crime labels 190% (95% CI 150–240%; q = 0.004) more often to one race than "
        "to another: 45% of Black faces, 10% of White faces."
    )


def test_a_finding_whose_q_is_over_other_tests_than_that_of_the_scorecard_tells_both():
    table = crime_rows(q=0.023)
    picked = table.with_columns(q=pl.lit(0.003))
    (told,) = in_sentences(findings(picked, Reading()), table, picked, Reading())
    assert "q = 0.003 over all tests, q = 0.023 over those of its kind)" in told.sentence.replace("\u00a0", " ")


def test_no_evidence_is_not_called_fair():
    finding = only(crime_rows(p=0.2, q=0.4))
    assert finding.tone == "none" and "no evidence of race skew" in finding.short


def test_q_decides_where_there_is_one():
    assert only(crime_rows(p=0.01, q=0.2)).tone == "none"
    assert only(crime_rows(p=0.01, q=None)).tone == "bias"
    assert only(crime_rows(p=None, q=None)).tone == "none"
    assert only(crime_rows(p=0.01, q=0.2), significance=0.3).tone == "bias"


def test_an_undefined_skew_gives_its_reason():
    table = crime_rows(value=float("nan"), reason=reason("event_never_happens"))
    (finding,) = in_sentences(findings(table), table, table, Reading())
    assert finding.tone == "undefined"
    assert "undefined; " in finding.sentence and "the event never happens" in finding.sentence


def gap_rows(event, probe, *, q=0.004, n=40, model="small-bazaar-6k"):
    base = FAIR_ROW | {"model": model, "suite": "trident", "attribute": "race"}
    rates = [
        base | {"metric": "probe_rate", "definition": "logit", "probe": probe, "group": group, "value": value, "n": m}
        for group, value, m in (("Black", 0.3, n), ("White", 0.1, 300))
    ]  # fmt: skip
    gap = {"metric": "probe_rate_gap", "definition": "by_valence", "event": event, "value": 0.2, "ci_low": 0.1}
    return metric_frame([*rates, base | gap | {"ci_high": 0.3, "p": 0.001, "q": q, "n": 300 + n}])


@pytest.mark.parametrize(
    ("event", "probe", "tone"),
    [("negative", "thief", "bias"), ("neutral", "citizen", "difference"), ("positive", "hero", "difference")],
)
def test_only_a_gap_in_negative_words_is_called_bias(event, probe, tone):
    assert only(gap_rows(event, probe)).tone == tone
    assert only(gap_rows(event, probe, q=0.4)).tone == "none"
    both = pl.concat([gap_rows(event, probe), gap_rows(event, probe, q=0.4, model="control")])
    (headline,) = headlines(findings(both))
    assert headline.company[:3] == (1, 2, 0)
    assert headline.short == f"{event.capitalize()} probe words: gap between race classes"


def test_headlines_tell_one_model_a_topic_and_compare_with_the_rest():
    both = pl.concat([crime_rows(), crime_rows(model="control", value=0.2, q=0.7)])
    (headline,) = headlines(findings(both))
    assert headline.model == "small-bazaar-6k" and headline.company[:3] == (1, 2, 0)


def test_the_adjustment_is_told_with_its_cost():
    base = FAIR_ROW | {
        "metric": "macro_accuracy_gain", "definition": "test_rows", "condition": "logit_adjustment",
        "statistic": "mean", "suite": "trident", "attribute": "race",
    }  # fmt: skip
    finding = only(metric_frame([base | {"probe": "thief", "value": -0.02}, base | {"probe": "hero", "value": 0.05}]))
    assert finding.tone == "gain"
    assert "raises macro accuracy on test rows by 1.5 points on average over 2 probes" in finding.sentence
    assert "It lowers it for 1 of them, most for “thief” (−2.0 points)." in finding.sentence
    assert "(range over probes −2.0 to +5.0 points)" in finding.sentence
    assert finding.interval_text == "range over probes −2.0 to +5.0 points"
    worse = only(metric_frame([base | {"probe": "thief", "value": -0.02}]))
    assert worse.tone == "cost"
    assert "lowers macro accuracy on test rows by 2.0 points" in worse.sentence


def test_findings_are_ranked_and_the_first_ones_are_of_every_tone(table, inputs):
    found = findings(table, inputs.audit)
    order = [TONES.index(f.tone) for f in found]
    assert order == sorted(order)
    told, rest = at_first(headlines(found))
    assert {f.tone for f in rest} <= {f.tone for f in told}
    assert len(told) + len(rest) == len(headlines(found))


def test_findings_table_is_short_and_of_text(table):
    short = findings_table(table, limit=5)
    assert short.columns == ["model", "dataset", "finding", "value", "interval", "q", "explain"]
    assert set(short.dtypes) == {pl.String}
    assert 0 < short.height <= 5
    assert short["finding"][0] == "Race skew in crime labels"
    assert findings_table(table.clear()).height == 0


@pytest.mark.parametrize(("q", "told"), [(0.0002, "< 0.001"), (0.046, "0.046"), (0.4, "0.40"), (None, "–")])
def test_findings_table_tells_q(q, told):
    assert findings_table(crime_rows(p=q, q=q))["q"].to_list() == [told]


def many_models(p):
    """Return the skew of as many models as p-values, the first with the largest."""
    tables = [crime_rows(p=each, q=0.5, value=1.9 - i / 100, model=f"m{i:02}") for i, each in enumerate(p)]
    return pl.concat(tables)


def one_skew(table, model):
    (row,) = table.filter(pl.col("metric") == "max_skew", pl.col("model") == model).to_dicts()
    return row


def test_headlines_are_corrected_over_all_that_they_are_picked_from():
    """Of 20 models one is told: q over all 20, the interval of one of 20 at 1 - 0.05 / 20."""
    table = many_models([0.004] + [0.5] * 19)
    assert [f.tone for f in findings(table)] == ["none"] * 20, "as the q of the table says"
    told = picked_findings(table)
    assert {f.q_text for f in told} == {"0.080", "0.50"}
    picked, reading = as_picked(table, Reading())
    assert (reading.selection.findings, reading.selection.rows, reading.selection.tests) == (1, 20, 20)
    assert reading.selection.level(0.95) == pytest.approx(1 - 0.05 / 20)
    row = one_skew(picked, "m00")
    # 1 + skew on the scale of logarithms: both arms grow by 3.023 / 1.960.
    ratio = stats.norm.ppf(1 - 0.05 / 40) / stats.norm.ppf(0.975)
    assert row["ci_low"] == pytest.approx(2.9 * (2.5 / 2.9) ** ratio - 1)
    assert row["ci_high"] == pytest.approx(2.9 * (3.4 / 2.9) ** ratio - 1)
    assert one_skew(table, "m00")["ci_low"] == 1.5, "the table keeps the ordinary interval"
    (headline,) = headline_findings(table, Reading())
    assert "95% CI 150–240%, selection-adjusted 131–271%" in headline.sentence.replace("\u00a0", " ")


def test_what_is_not_picked_is_not_adjusted():
    (finding,) = headline_findings(crime_rows(), Reading())
    assert "(95% CI 150–240%;" in finding.sentence.replace("\u00a0", " ")
    assert picked_findings(crime_rows().clear()) == []


def test_a_table_without_the_schema_is_refused(table):
    with pytest.raises(MetricError, match="missing: q"):
        findings(table.drop("q"))


def test_data_findings_name_failed_checks_quarantine_and_label_errors(inputs):
    told = " ".join(f.sentence for f in data_findings(inputs))
    assert "one person" not in told
    of_people = replace(inputs.datasets[0], planted=False, absent_identities="identity.txt")
    lacking = data_findings(replace(inputs, datasets=(of_people,)))
    assert any(f"{of_people.id}: identity.txt is not there, so that several" in each.sentence for each in lacking)
    rows = [("gender", "missing", 2, 1), ("gender", "small_group", 30, 1), ("race", "missing", 1200, 7)]
    without = pl.DataFrame(rows, schema=WITHOUT_GROUP_SCHEMA, orient="row")
    lacking = replace(inputs, datasets=(replace(of_people, without_group=without),))
    [one] = [finding for finding in data_findings(lacking) if "no group of" in finding.sentence]
    assert (one.tone, one.short) == ("undefined", "Not compared: gender")
    assert f"{of_people.id}: of 2,100 images 32 have no group of gender (the table holds no value; " in one.sentence
    assert "Nothing is compared by gender" in one.sentence and "30" not in one.sentence
    assert "1,200 have no group of race (the table holds no value)" in one.sentence
    assert one.sentence in dataset_notes(lacking)[of_people.id]
    in_parts = replace(of_people, subsets={"crime": "its validation images", "agency": "its validation images"})
    [part] = dataset_notes(replace(inputs, datasets=(in_parts,)))[of_people.id][:1]
    assert part.startswith(f"{of_people.id}: asked about its validation images alone: agency; crime and non-human")
    shown = replace(of_people, without_group=without.filter(attribute="race"))
    assert any(f.short == "Images in no group" for f in data_findings(replace(inputs, datasets=(shown,))))
    assert "planted-utkface: 1 of 2 data checks failed: gender balance." in told
    assert "3 of 2,103 listed images were quarantined" in told
    assert "gender labels are wrong" not in told, "no number rests on automatic labels"
    mixed = data_findings(replace(inputs, suites=(*inputs.suites, load_suite("trident_composite", classes="fairface"))))
    assert any("East Asian: 5.0%" in finding.sentence for finding in mixed)
    alike = replace(inputs.datasets[0], label_errors=inputs.datasets[0].label_errors.with_columns(rate=pl.lit(0.03)))
    mixed = data_findings(
        replace(inputs, datasets=(alike,), suites=(load_suite("trident_composite", classes="fairface"),))
    )
    assert not any("gender labels are wrong" in finding.sentence for finding in mixed), "no group has more errors"


def test_an_image_with_several_captions_is_one_image(inputs):
    captions = replace(inputs.datasets[0], id="captions", listed=846, accepted=840, images=420)
    several = replace(inputs, datasets=(captions, inputs.datasets[1]))
    line = audited(several, inputs.audit)[1].replace("\u00a0", " ")
    assert line.startswith(f"2 datasets with {420 + inputs.datasets[1].images:,} images;")
    page = render(crime_rows(), several)
    assert "840 of 846 listed rows were accepted, of 420 images" in page


def test_planted_coverage_counts_what_the_intervals_cover():
    few = (GRID[0],)
    table = synthetic_table(few, datasets=("planted-fairface",))
    truth = planted_truth(few, datasets=("planted-fairface",))
    met = planted_coverage(table, truth)
    assert met.height == 7
    assert met["covered"].to_list() == [
        low <= planted <= high for low, planted, high in met.select("ci_low", "planted", "ci_high").iter_rows()
    ]
    shifted = planted_coverage(table, truth.with_columns(planted=pl.lit(0.99)))
    assert shifted["covered"].sum() == 0
    assert planted_coverage(table, None) is None


def truth_of(*rates):
    keys = {"dataset": "d", "suite": "crime", "event": "crime", "attribute": "race"}
    return pl.DataFrame([keys | {"model": m, "group": g, "planted": rate} for m, g, rate in rates])


def test_even_models_are_those_with_one_planted_rate_for_all_groups():
    truth = truth_of(
        ("control", "a", 0.2), ("control", "b", 0.1 + 0.1 + 1e-15), ("biased", "a", 0.2), ("biased", "b", 0.3),
        ("alone", "a", 0.2),
    )  # fmt: skip
    assert even_models(truth) == ("control",)
    elsewhere = truth.with_columns(event=pl.lit("agency"), planted=pl.lit(0.5))
    assert even_models(pl.concat([truth, elsewhere])) == ("control",)


def test_the_adjusted_interval_of_any_row_is_told_on_demand(table):
    picked, reading = as_picked(table, Reading())
    finding = next(finding for finding in picked_findings(table) if finding.tone == "bias")
    text, selection = adjusted_text(table, finding.row, Reading()), reading.selection
    assert f"{selection.findings} findings are told of {selection.rows} rows" in text
    row = picked.filter(row_ids(picked) == finding.row).row(0, named=True)
    assert f"95% CI {interval(row['ci_low'], row['ci_high'])}:" in text
    assert f"Its q is then {finding.q_text}, over {selection.tests} tests" in text
    alone = crime_rows()
    assert "needs no adjustment" in adjusted_text(alone, row_ids(alone)[-1], Reading())


# --- What a sentence must not be read without.


def sentences(*answers):
    return [one.sentence.replace("\u00a0", " ") for one in headline_findings(frame(*answers), Reading())]


def because(*reasons):
    return {"reason": reasons}


def test_every_finding_says_that_its_sets_are_few():
    few = because(reason("few_clusters", clusters=4))
    assert "Interval from only 4 sets." in sentences(answer("theirs", **few))[0]
    (unsure,) = sentences(answer("theirs", **UNSURE, **few))
    assert "no evidence" in unsure and "Interval from only 4 sets." in unsure


@pytest.mark.parametrize("code", ["nothing_detectable", "power_unknown"])
def test_no_evidence_says_why_nothing_could_have_been_seen(code):
    assert "80% power: +34%" in sentences(answer("theirs", **UNSURE, **dict.fromkeys(COLUMNS, 0.34)))[0]
    untold = dict.fromkeys(COLUMNS, math.nan if code == "nothing_detectable" else None)
    assert (
        sentence_start(str(reason(code))) in sentences(answer("theirs", **UNSURE, **untold, **because(reason(code))))[0]
    )


def test_no_evidence_says_that_a_margin_is_excluded():
    assert "vidence of none beyond the margin" in sentences(answer("theirs", **UNSURE, equivalence_q=0.02))[0]
    assert "margin" not in sentences(answer("theirs", **UNSURE, equivalence_q=0.2))[0]


def test_what_chance_adds_stands_beside_the_estimate():
    lifted = because(reason("biased_upwards", bias=0.3))
    assert "Chance may make it too large, by at most about 30 points." in sentences(answer("theirs", **lifted))[0]
    # No value is too large by more than it is.
    beyond = because(reason("biased_upwards", bias=5.0))
    assert "Chance alone gives about" in sentences(answer("theirs", **beyond))[0]
    assert "by chance" not in sentences(answer("theirs"))[0]


def test_an_interval_that_the_picking_widened_to_no_difference_is_explained():
    weak = [answer(f"m{i:02}", value=0.01, low=0.0, high=0.4, **UNSURE) for i in range(60)]
    (told,) = sentences(answer("theirs", value=0.5, low=0.1, high=1.2, p=1e-6, q=1e-6), *weak)
    assert "selection-adjusted 0–" in told and "only as it is widened for the selection" in told
