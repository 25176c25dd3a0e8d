"""Where Max Skew alone would mislead another reading speaks, and no sentence tells of a number that is not there."""

import math
import re

import numpy as np
import polars as pl
import pytest
import test_report_associations
import test_report_confounds
import test_report_rankings
import test_report_robustness
from synthetic_language import MODELS, language_table, word_table
from synthetic_table import GRID, synthetic_table

from plumbline.catalog.schema import IDENTIFYING, metric_frame, row_id
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.reasons import encode, find, reason
from plumbline.report import Reading, findings, findings_table, headlines
from plumbline.report.evidence import could_be_found, excludes_parity
from plumbline.report.finding import at_first
from plumbline.report.findings import as_picked, picked_findings
from plumbline.report.language import word_findings
from plumbline.report.numbers import bare_p, interval, number, p_value, percent, percent_interval, points
from plumbline.report.vocabulary import sentence_start
from plumbline.statistics.power import COLUMNS

NAN = math.nan
BASE = {
    "model": "theirs", "dataset": "portraits", "condition": "before", "statistic": "estimate", "suite": "crime",
    "event": "crime", "attribute": "race", "n": 60,
}  # fmt: skip
SHARES = {"north": (11, 18), "east": (8, 22), "south": (0, 20)}
"""Of a newcomer's sixty images: how many of each group were given crime labels."""
LEFT_OUT = reason("undefined_pairs", undefined=2, pairs=3)


def estimate(value, low=NAN, high=NAN, p=None, reason=None):
    return {"value": value, "ci_low": low, "ci_high": high, "p": p, "q": p, "reason": reason}


SKEW = estimate(0.68, 0.0, 2.7, 0.56, LEFT_OUT)
SMOOTHED = estimate(13.2, 9.2, 17.0, 0.0001)
PARITY = estimate(11 / 18, 0.39, 0.83, 0.0002)
WEAK = estimate(1.3, 0.0, 4.0, 0.4, reason("reaches_parity"))
WEAK_PARITY = estimate(0.2, 0.0, 0.4, 0.3)


def rows(skew=SKEW, smoothed=None, parity=None, shares=SHARES, **columns):
    base = BASE | columns
    found = [
        base | {"metric": "outcome_proportion", "definition": "top1", "group": g, "value": hit / n, "n": n}
        for g, (hit, n) in shares.items()
    ]
    for metric, definition, columns in (
        ("max_skew", "mean_over_pairs", skew),
        ("max_skew", "smoothed", smoothed),
        ("parity_difference", "max_minus_min", parity),
    ):
        if columns is not None:
            found.append(base | {"metric": metric, "definition": definition} | columns)
    return metric_frame(found)


def only(table):
    (finding,) = findings(table, Reading())
    return finding, finding.sentence.replace("\u00a0", " ")


def name(metric, definition):
    return row_id(BASE | {"metric": metric, "definition": definition})


def test_the_group_that_never_gets_the_label_is_not_called_no_evidence():
    finding, told = only(rows(smoothed=SMOOTHED, parity=PARITY))
    assert finding.tone == "bias" and "no evidence" not in told
    assert told == (
        "theirs on portraits: race skew in crime labels is undefined in 2 of 3 pairs of groups (never given to south "
        "faces) and 0.68 in the rest (95% CI 0.0–2.7; p = 0.56, q = 0.56). Smoothed, so that every pair counts, it is "
        "13 (95% CI 9–17; p < 0.001, q < 0.001); the largest and the smallest share differ by 61 points (95% CI "
        "39–83%; p < 0.001, q < 0.001). North faces 61% (n = 18, small group), south faces 0% (n = 20, small group)."
    )
    assert finding.row == name("max_skew", "smoothed") and finding.strength == 9.2
    assert finding.short == "Race skew in crime labels, smoothed"
    (shown,) = findings_table(rows(smoothed=SMOOTHED, parity=PARITY)).to_dicts()
    # One finding is told of three readings.
    assert (shown["finding"], shown["value"], shown["interval"]) == (finding.short, "13", "8–18")
    assert shown["explain"] == finding.row


@pytest.mark.parametrize("smoothed", [None, WEAK])
def test_the_parity_difference_speaks_where_the_smoothed_skew_does_not(smoothed):
    finding, told = only(rows(smoothed=smoothed, parity=PARITY))
    assert finding.tone == "bias" and "differ by 61 points (95% CI 39–83%" in told
    assert finding.row == name("parity_difference", "max_minus_min")
    assert (finding.value_text, finding.interval_text) == ("61%", "39–83%")
    assert finding.short == "Race skew in crime labels, parity difference"


@pytest.mark.parametrize("others", [{"smoothed": SMOOTHED}, {"parity": PARITY}, {"smoothed": WEAK, "parity": PARITY}])
def test_a_significant_reading_vetoes_no_evidence_though_every_pair_is_defined(others):
    finding, told = only(rows(estimate(0.4, 0.0, 1.2, 0.09), **others))
    assert finding.tone == "bias" and "no evidence of" not in told
    assert "is 0.40 (95% CI 0.0–1.2; p = 0.090, q = 0.090), which alone is no evidence." in told


def test_without_evidence_over_all_groups_that_is_what_is_said():
    finding, told = only(rows(smoothed=WEAK, parity=WEAK_PARITY))
    assert finding.tone == "none" and finding.row == name("max_skew", "smoothed")
    assert "no evidence of race skew in crime labels over all groups; smoothed, so that every pair" in told
    assert "is undefined in 2 of 3 pairs of groups (never given to south faces)" in told
    assert told.endswith("This does not show its absence: the interval reaches 4.0.")


def test_a_parity_difference_without_evidence_is_said_in_percent():
    finding, told = only(rows(parity=WEAK_PARITY))
    assert finding.tone == "none" and "share differ by 20 points (95% CI 0–40%" in told
    assert told.endswith("This does not show its absence: the interval reaches 40%.")


def test_with_no_other_reading_it_cannot_be_said():
    finding, told = only(rows())
    assert finding.tone == "undefined" and "no evidence" not in told
    assert "undefined in 2 of 3 pairs of groups" in told and "tells nothing of the groups left out" in told


def test_of_two_groups_the_only_pair_can_be_undefined():
    shares = {"man": (0, 34), "woman": (17, 26)}
    skew = estimate(NAN, reason=reason("undefined_pairs", undefined=1, pairs=1))
    finding, told = only(rows(skew, SMOOTHED, shares=shares, attribute="gender"))
    assert finding.tone == "bias"
    assert "undefined in its only pair of groups (never given to faces of men). Smoothed" in told


def test_an_event_that_never_happens_and_an_empty_group_leave_the_skew_its_sentence():
    none = dict.fromkeys(SHARES, (0, 20))
    finding, told = only(rows(estimate(0.0, p=1.0), estimate(0.1, p=1.0), estimate(0.0, p=1.0), none))
    assert finding.tone == "none" and "; the estimate is 0 (no interval" in told
    some = {"north": (3, 20), "east": (2, 20)}
    empty = estimate(0.5, 0.0, 2.0, 0.5, (reason("empty_groups", empty=1, groups=3), LEFT_OUT))
    assert only(rows(empty, WEAK, shares=some))[1].count("no evidence of race skew in crime labels; ") == 1


def test_a_skew_without_an_interval_has_the_smoothed_one_beside_it():
    undefined = reason("no_interval_undefined", undefined=1334, resamples=10000)
    bare = estimate(10.1, p=0.0004, reason=undefined)
    shares = {"man": (2, 34), "woman": (17, 26)}
    smoothed = estimate(8.1, 1.9, 44.0, 0.0004)
    finding, told = only(rows(bare, smoothed, shares=shares, attribute="gender"))
    assert "skew in crime labels is 10 (no interval" in told
    assert " Smoothed, it is 8.1 (95% CI 2–44; p < 0.001, q < 0.001). Faces of women 65%" in told
    assert finding.strength == 1.9 and finding.row == row_id(
        BASE | {"metric": "max_skew", "definition": "mean_over_pairs", "attribute": "gender"}
    )
    assert "Smoothed" not in only(rows(SMOOTHED, smoothed, shares=shares))[1]


# --- the company of a headline


def test_without_evidence_the_model_with_the_largest_value_is_told():
    shares = {"north": (3, 20), "east": (2, 20)}
    weak = [rows(estimate(v, 0.0, 2.0, 0.5), shares=shares, model=m) for v, m in ((0.0, "a"), (0.68, "b"))]
    (headline,) = headlines(findings(pl.concat(weak)))
    assert headline.model == "b" and headline.sentence.endswith(
        "The same for all 2 models: this one has the largest value."
    )


def test_values_of_unlike_readings_are_not_compared():
    shares = {"north": (3, 20), "east": (2, 20)}
    fair = rows(estimate(0.0, 0.0, 0.4, 1.0), smoothed=WEAK, shares=shares, model="a")
    (headline,) = headlines(findings(pl.concat([fair, rows(smoothed=SMOOTHED)])))
    assert headline.model == "theirs" and headline.sentence.endswith("Evidence of it in 1 of 2 models.")
    # The same row of each model counts: another reading of the question is not it.
    other = rows(estimate(2.0, 1.0, 4.0, 0.001), smoothed=WEAK, shares=shares, model="b")
    (headline,) = headlines(findings(pl.concat([fair, other, rows(smoothed=SMOOTHED)])))
    assert headline.row == name("max_skew", "smoothed") and headline.sentence.endswith("in 1 of 3 models.")
    (headline,) = headlines(findings(pl.concat([fair, rows(smoothed=WEAK)])))
    assert headline.sentence.endswith("The same for all 2 models.")


def test_without_an_interval_that_is_what_is_said():
    small = reason("small_groups", min_group=30, groups=["south"])
    why = (small, reason("constant_resamples"))
    _, told = only(rows(estimate(0.0, p=1.0, reason=why), shares={"north": (0, 18), "south": (0, 20)}))
    assert told.endswith("This does not show its absence: it has no interval (the resamples do not vary).")
    _, told = only(rows(estimate(0.0, p=1.0), shares={"north": (0, 18), "south": (0, 20)}))
    assert told.endswith("This does not show its absence: it has no interval.")


# --- labels that have no skew

ANIMALS = {"north": (2, 18), "east": (1, 22), "south": (19, 20)}


def animals(parity, shares=ANIMALS, **columns):
    return rows(None, None, parity, shares, event="non_human", **columns)


def test_a_large_difference_in_animal_labels_is_a_finding():
    ratio = BASE | {"event": "non_human", "metric": "impact_ratio", "definition": "min_over_max", "value": 0.048}
    parity = estimate(19 / 20 - 1 / 22, 0.69, 1.0, 0.0004)
    finding, told = only(pl.concat([animals(parity), metric_frame([ratio])]))
    assert (finding.tone, finding.topic) == ("bias", ("parity", "portraits", "crime", "non_human", "race"))
    assert told == (
        "theirs on portraits: shares of non-human labels by race differ by 90.5 points (95% CI 69–100%; p < 0.001, "
        "q < 0.001). South faces 95.0% (n = 20, small group), east faces 4.5% (n = 22, small group). The smallest "
        "share is 0.048 times the largest (impact ratio)."
    )
    assert at_first(headlines([finding])).first[0].row == finding.row


@pytest.mark.parametrize(
    "parity",
    [
        estimate(0.5, 0.2, 0.8, 0.2),
        estimate(0.09, 0.06, 0.13, 0.001),
        estimate(0.15, 0.005, 0.42, 0.0003),
        estimate(NAN, reason=reason("empty_groups", empty=1, groups=2)),
    ],
)
def test_differences_that_are_small_or_not_sure_are_not_told(parity):
    assert findings(animals(parity), Reading()) == []


def test_variants_crossed_groups_and_events_with_a_skew_are_not_told_again():
    large = estimate(0.9, 0.7, 1.0, 0.001)
    assert findings(animals(large, suite="crime_pooled"), Reading()) == []
    assert findings(animals(large, attribute="gender_race"), Reading()) == []
    (finding,) = findings(rows(SMOOTHED, parity=large), Reading())
    assert finding.topic[0] == "skew"


def test_of_a_large_difference_every_model_is_counted():
    large, small = estimate(0.9, 0.7, 1.0, 0.001), estimate(0.0, p=1.0)
    fair = dict.fromkeys(ANIMALS, (0, 20))
    both = pl.concat([animals(large), animals(small, fair, model="fair")])
    (headline,) = headlines(findings(both))
    assert headline.sentence.endswith("Evidence of it in 1 of 2 models; the smallest value is 0% (fair).")
    (other,) = (f for f in findings(both) if f.model == "fair")
    assert other.tone == "none" and other.sentence.endswith(" apart. Every group has 0%.")


# --- what could have been seen, and what is excluded


def told_beside(**columns):
    table = rows(WEAK, shares={"north": (3, 20), "east": (2, 20)})
    return only(table.with_columns(pl.lit(value, pl.Float64).alias(name) for name, value in columns.items()))[1]


def test_no_evidence_says_what_could_have_been_seen():
    told = told_beside(smallest_detectable=0.344)
    assert told.endswith("reaches 4.0. Four of five such audits would have found a true value of 0.34.")
    assert told_beside(smallest_detectable=NAN).endswith(
        "So few images would hardly show any difference at the p that the correction requires."
    )
    assert told_beside().endswith("the interval reaches 4.0.")


@pytest.mark.parametrize("code", ["nothing_detectable", "power_unknown"])
def test_why_nothing_is_told_as_detectable_is_said_once(code):
    why = reason(code)
    shares = {"north": (3, 20), "east": (2, 20)}
    assert only(rows(estimate(1.3, 0.0, 4.0, 0.4, why), shares=shares))[1].count(str(why)) == 1
    row = {"reason_codes": encode((why,)), "smallest_detectable": NAN}
    assert could_be_found(row) == f" {sentence_start(str(why))}." and could_be_found(row, said=f"(n = 6; {why})") == ""


@pytest.mark.parametrize(
    ("metric", "ends", "p", "said"),
    [
        ("parity_difference", (0.01, 0.3), 0.03, True), ("parity_difference", (0.0, 0.3), 0.03, False),
        ("weat_effect", (-0.9, -0.1), 0.02, True), ("weat_effect", (-0.9, 0.1), 0.02, False),
        ("impact_ratio", (0.5, 0.9), 0.04, True), ("impact_ratio", (0.5, 1.0), 0.06, False),
        ("skew_at_k", (0.1, 0.4), 0.3, False), ("ndkl", (0.1, 0.4), 0.01, False), ("accuracy", (0.1, 0.4), NAN, False),
    ],
)  # fmt: skip
def test_an_interval_that_excludes_no_difference_without_evidence_is_explained(metric, ends, p, said):
    row = BASE | estimate(ends[1], *ends, p) | {"metric": metric}
    assert ("Its interval excludes no difference" in excludes_parity(row)) == said


def test_a_margin_that_is_excluded_is_told_and_another_not():
    told = told_beside(equivalence_q=0.021)
    assert told.endswith("evidence of none beyond the margin that the audit file declares (q = 0.021).")
    assert "margin" not in told_beside(equivalence_q=0.2)


def test_what_could_have_been_seen_is_at_the_p_of_the_headlines():
    weak = rows(WEAK, shares={"north": (3, 20), "east": (2, 20)}).with_columns(
        detectable_05=pl.lit(0.2), detectable_002=pl.lit(0.3), smallest_detectable=pl.lit(0.9)
    )
    (alone,) = picked_findings(weak)
    assert alone.sentence.endswith("a true value of 0.20.")
    events = [weak.with_columns(pl.lit(event).alias("event")) for event in ("agency", "communion", "crime")]
    told = [finding.sentence for finding in picked_findings(pl.concat(events))]
    assert len(told) == 3 and all(sentence.endswith("a true value of 0.24.") for sentence in told)


# --- no number that is not there

_NOT_A_NUMBER = re.compile(r"\bnan\b|\b(CI|by|of|to|reaches|gap is|estimate is) (undefined|no interval)", re.IGNORECASE)


def without(table, *columns):
    return table.with_columns(pl.lit(NAN).alias(column) for column in columns)


def robustness_table():
    frames = []
    for cell in test_report_robustness.small_cells("clip", np.random.default_rng(0)):
        for family in ("outcome_metrics", "robustness_metrics", "trident_metrics"):
            frames.append(FAMILIES[family].compute(cell, settings=test_report_robustness.QUICK))
    return metric_table(frames, audit_id="a")


TABLES = {
    "encoders": synthetic_table,
    "associations": lambda: metric_frame(test_report_associations.rows_of("clip")),
    "rankings": lambda: metric_frame(test_report_rankings.rows_of("clip")),
    "confounds": lambda: metric_frame(test_report_confounds.rows_of("clip")),
    "robustness": robustness_table,
    "language": language_table,
    "any people": lambda: rows(
        SKEW,
        SMOOTHED,
        PARITY,
        shares=dict(zip(("under 30", "30 to 49", "50 and over"), SHARES.values())),
        attribute="age in 10 years",
        dataset="staff",
    ),
}


@pytest.fixture(scope="module", params=TABLES)
def every_kind(request):
    return TABLES[request.param]()


@pytest.mark.parametrize("columns", [("ci_low", "ci_high"), ("p", "q"), ("ci_low", "ci_high", "p", "q")])
def test_no_sentence_tells_a_number_that_is_not_there(every_kind, columns):
    told = findings(without(every_kind, *columns), Reading())
    for finding in (*told, *headlines(told)):
        assert not _NOT_A_NUMBER.search(finding.sentence), finding.sentence
        if finding.tone != "undefined":
            assert not re.search(r"undefined(?! in \d)(?! in its only pair)", finding.sentence), finding.sentence


@pytest.mark.parametrize("event", ["crime", "negative_communion", None])
def test_no_sentence_tells_a_value_that_is_not_there(every_kind, event):
    gone = pl.lit(True) if event is None else pl.col("event") == event
    numbers = [pl.when(gone).then(NAN).otherwise(pl.col(c)).alias(c) for c in ("value", "ci_low", "ci_high", "p")]
    told = findings(every_kind.with_columns(numbers, q=pl.when(~gone).then(pl.col("q"))), Reading())
    for finding in (*told, *headlines(told)):
        assert not _NOT_A_NUMBER.search(finding.sentence), finding.sentence


def test_every_number_and_count_of_a_finding_is_that_of_a_row(every_kind):
    table, reading = as_picked(every_kind, Reading())
    named = {row_id(row): row for row in table.to_dicts()}
    question = [name for name in IDENTIFYING if name != "model"]
    checked = 0
    for finding in headlines(findings(table, reading)):
        if finding.row is None:
            continue
        row, checked = named[finding.row], checked + 1
        assert (finding.model, finding.dataset) == (row["model"], row["dataset"])
        low, high = (row[name] if row[name] is not None else NAN for name in ("ci_low", "ci_high"))
        assert finding.interval_text in {interval(low, high), percent_interval(low, high), interval(-high, -low)}
        assert finding.q_text in ("–", bare_p(row["q"]))
        written = {each(sign * (row["value"] or 0.0)) for each in (number, percent) for sign in (1, -1)}
        assert re.sub(r"^\$| sd$| points$", "", finding.value_text) in written, finding
        if counted := re.search(r"Evidence of it in (\d+) of (\d+) models", finding.sentence):
            same = table.filter(pl.all_horizontal(pl.col(name).eq_missing(pl.lit(row[name])) for name in question))
            levels = [p if q is None else q for q, p in same.select("q", "p").iter_rows()]
            levels = [level for level in levels if level is not None and level == level]
            assert (int(counted[1]), int(counted[2])) == (sum(level < 0.05 for level in levels), len(levels))
    assert checked


# --- every figure of a sentence

_BESIDE = ["model", "dataset", "condition", "suite"]
_FIGURE = re.compile(r"[−+<>]?\d[\d,]*(?:\.\d+)?(?:e−?\d+)?%?")


def own_texts(row):
    """Return how a sentence may write the numbers of the row that it tells."""
    low, high = (row[name] if row[name] is not None else NAN for name in ("ci_low", "ci_high"))
    yield from (
        interval(low, high),
        interval(-high, -low),
        interval(100 * low, 100 * high),
        percent_interval(low, high),
    )
    yield from (p_value(row["p"]), p_value(row["q"], "q"), row["reason"] or "", row["probe"] or "")
    for value in (high, row["smallest_detectable"]):
        yield from (number(value), percent(value))
    yield from texts_of(row)


def texts_of(row):
    """Return how a sentence may write the value, size and k of a row that it tells or compares with."""
    value = abs(row["value"]) if row["value"] is not None else NAN
    for decimals in (None, 0, 1, 2, 3):
        yield from (number(value, decimals=decimals), points(value, decimals=decimals).removesuffix(" points"))
    for decimals in (None, 0, 1):
        yield from (percent(value, decimals=decimals), f"{number(value, decimals=decimals)}%")
    # Skew@k is told as a ratio, a gap of shares in points.
    yield from (
        number(float(np.exp(min(value, 9.0)))),
        number(float(np.exp(-min(value, 9.0)))),
        number(100 * value),
        f"{value:,.0f}",
    )
    yield from (f"{row['n'] or 0:,}", f"{row['k'] or 0:,}")


def counts_of(rows, own):
    """Return what a sentence may count: groups of the attribute, their pairs, rows of the metric by what it is of."""
    same = rows.filter(pl.col("attribute").eq_missing(own["attribute"]))
    groups = same["group"].drop_nulls().n_unique()
    yield from (groups, groups * (groups - 1) // 2)
    alike = rows.filter(metric=own["metric"])
    for names in (["definition"], ["definition", "attribute"], ["definition", "attribute", "event"], ["attribute"]):
        counted = alike.filter(pl.all_horizontal(pl.col(name).eq_missing(pl.lit(own[name])) for name in names))
        yield from (counted.height, counted.filter(pl.col("q") < 0.05).height)


def rows_beside(table):
    """Return the rows that a sentence about one of them may compare with, and their texts."""
    parts = table.partition_by(_BESIDE, as_dict=True)
    alone = {key[:3]: part for key, part in parts.items() if key[3] is None}
    found = {}
    for key, part in parts.items():
        rows = pl.concat([part, alone[key[:3]]]) if key[3] is not None and key[:3] in alone else part
        found[key] = rows, {text.replace("−", "") for row in rows.iter_rows(named=True) for text in texts_of(row)}
    return found


_READINGS = ("max_skew", "parity_difference", "impact_ratio")


def figures_of_no_row(sentence, own, beside):
    """Return the figures of a sentence that neither its row has nor those of the same model and suite."""
    # Counts over several attributes are held in the tests of their chapters.
    sentence = re.sub(
        r"95% CI|.of 10\b|(Evidence in \d+|the least uncertain) of \d+ lines|Over \d+ comparisons.*", " ", sentence
    )
    rows, known = beside[tuple(own[name] for name in _BESIDE)]
    names = {own["model"], own["dataset"], own["attribute"] or "", *rows["group"].drop_nulls()}
    readings = [own]  # a skew is told in several readings, each with its interval
    if own["metric"] in _READINGS:
        alike = (pl.col(name).eq_missing(pl.lit(own[name])) for name in ("attribute", "event", "statistic"))
        readings += rows.filter(pl.col("metric").is_in(_READINGS), *alike).to_dicts()
    texts = {text for row in readings for text in own_texts(row)}
    for text in sorted(texts | names, key=len, reverse=True):
        if any(letter.isdigit() for letter in text):
            sentence = re.sub(rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d)", " ", sentence, flags=re.IGNORECASE)
    known = known | {str(count) for count in counts_of(rows, own)}
    groups = next(counts_of(rows, own))
    known.add(percent(1 / groups) if groups else "")
    return [each for each in _FIGURE.findall(sentence) if each.strip("+−,") not in known]


EVIDENT = {"as it is": None, "all evident": 1e-7, "none evident": 0.7}


@pytest.mark.parametrize("p", EVIDENT.values(), ids=EVIDENT)
def test_every_figure_of_a_sentence_is_that_of_a_row(every_kind, p):
    one = every_kind["model"].unique().sort()[0]
    tested = pl.when(pl.col("p").is_not_nan()).then(pl.lit(p)).otherwise("p")
    table = every_kind.filter(model=one).with_columns(pl.col("p") if p is None else tested.alias("p"))
    table = table.with_columns(pl.coalesce(pl.col(name).fill_nan(None), pl.lit(0.37731)) for name in COLUMNS)
    table, reading = as_picked(table, Reading())
    named = {row_id(row): row for row in table.to_dicts()}
    told = [finding for finding in findings(table, reading) if finding.row is not None]
    beside = rows_beside(table)
    unknown = {each.sentence: figures_of_no_row(each.sentence, named[each.row], beside) for each in told}
    assert not {sentence: figures for sentence, figures in unknown.items() if figures}
    for each in told:
        least = named[each.row]["smallest_detectable"]
        seen = re.findall(r"would have found a true value of (\S+)\.(?: |$)", each.sentence)
        assert set(seen) <= {number(least), percent(least)}, each.sentence
    tones = {each.tone for each in told}
    if p == EVIDENT["none evident"]:
        assert not tones & {"bias", "difference"}
        return  # of answers nothing is told then
    assert p is None or tones & {"bias", "difference"}
    own = named[told[0].row]
    for wrong in (" 47.31%", f" (n = {(own['n'] or 0) + 104729})", " p = 0.0471"):
        assert figures_of_no_row(told[0].sentence + wrong, own, beside), wrong


# --- every figure of what is told of several rows

_AT_CHANCE = estimate(0.148, 0.12, 0.18, None, reason("at_chance", chance=1 / 7)) | {
    "metric": "zero_shot_accuracy", "definition": "micro", "event": None,
}  # fmt: skip
SEVERAL = {
    "text space": lambda: metric_frame(test_report_confounds.gap_rows("m", 4)).filter(definition="permutation"),
    "adjustment": lambda: synthetic_table(GRID[:1]).filter(
        metric="macro_accuracy_gain", definition="test_rows", statistic="mean"
    ),
    "words": lambda: word_table(MODELS[:1]).with_columns(value="association"),
    "weak": lambda: metric_frame([BASE | _AT_CHANCE]),
}
"""Kind of findings -> rows of one model that they are told of."""


def findings_of_several(kind, rows):
    of_table = {"words": word_findings}
    return of_table.get(kind, findings)(rows, Reading())


def figures_of_several(sentence, rows):
    """Return the figures of a sentence that none of its rows has, nor their mean, nor how many they are."""
    known, values = set(), rows["value"].to_numpy()
    for row in rows.to_dicts():
        known |= {f"{row.get(name) or 0:,}" for name in ("count", "count_others", "n_others")}
        known |= set(own_texts(dict.fromkeys(("reason", "probe", "k", "smallest_detectable")) | row))
        if chance := find(row.get("reason_codes"), "at_chance"):
            known.add(percent(chance.params["chance"]))
    evident = rows.filter(pl.col("q") < 0.05).height
    known |= {points(abs(values.mean())), *map(str, (rows.height, evident, int((values < 0).sum())))}
    if "kind" in rows.columns:  # smoothed skews and parity differences are further readings of an axis
        known.add(str(rows.remove(pl.col("kind") == "axis", pl.col("definition") != "mean_over_pairs").height))
    bare = {text.strip("−+").removesuffix(" points").lstrip("+") for text in known}
    for text in sorted({*known, *rows["model"], *rows["dataset"], "95% CI"}, key=len, reverse=True):
        if any(letter.isdigit() for letter in text):
            sentence = re.sub(rf"(?<![\d.,]){re.escape(text)}(?!\d|[.,]\d)", " ", sentence)
    return [each for each in _FIGURE.findall(sentence) if each.strip("+−,") not in bare]


@pytest.mark.parametrize("kind", SEVERAL)
def test_every_figure_of_what_is_told_of_several_rows_is_theirs(kind):
    every = SEVERAL[kind]()
    told = findings_of_several(kind, every)
    assert {finding.topic[0] for finding in told} == {kind}
    for finding in told:
        own = every.filter(dataset=finding.dataset)
        for name in ("suite", "condition"):
            if name in own.columns and set(finding.topic) & set(own[name]):
                own = own.filter(pl.col(name).is_in(finding.topic))
        left = figures_of_several(finding.sentence, own)
        assert not left, (finding.sentence, left)
        assert figures_of_several(f"{finding.sentence} 7771 of 47.39%", own) == ["7771", "47.39%"]
