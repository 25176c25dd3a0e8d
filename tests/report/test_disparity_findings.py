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
from test_front_page import UNIT_OF, groups_of, told, without_names, written

from plumbline.catalog.schema import IDENTIFYING, metric_frame, row_id, row_ids
from plumbline.metrics.evidence import SIGNED
from plumbline.metrics.registry import FAMILIES, metric_table
from plumbline.reasons import find, reason
from plumbline.report import Reading, findings, findings_table, headlines
from plumbline.report.evidence import Q_OF_KIND, excludes_parity, finding_of
from plumbline.report.finding import at_first
from plumbline.report.findings import as_picked, headline_findings
from plumbline.report.language import word_findings
from plumbline.report.numbers import bare_p, interval, number, p_value, percent, percent_interval, points
from plumbline.report.scorecard import smallest_group
from plumbline.report.sentences import OF_METRIC, in_sentences
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
    return finding


def name(metric, definition):
    return row_id(BASE | {"metric": metric, "definition": definition})


def test_the_group_that_never_gets_the_label_is_not_called_no_evidence():
    table = rows(smoothed=SMOOTHED, parity=PARITY)
    finding = only(table)
    assert (finding.tone, finding.short) == ("bias", "Race skew in crime labels, smoothed")
    assert finding.row == name("max_skew", "smoothed") and finding.strength == 9.2
    (told,) = in_sentences([finding], table, table, Reading())
    assert told.sentence.replace("\u00a0", " ").startswith(
        "On portraits, theirs gives crime labels 1,320% (95% CI 920–1,700%; q < 0.001) more often to one race"
    )
    (shown,) = findings_table(table).to_dicts()
    # One finding is told of three readings.
    assert (shown["finding"], shown["value"], shown["interval"]) == (finding.short, "13", "8–18")
    assert shown["explain"] == finding.row


@pytest.mark.parametrize("smoothed", [None, WEAK])
def test_the_parity_difference_speaks_where_the_smoothed_skew_does_not(smoothed):
    finding = only(rows(smoothed=smoothed, parity=PARITY))
    assert (finding.tone, finding.row) == ("bias", name("parity_difference", "max_minus_min"))
    assert (finding.value_text, finding.interval_text) == ("61%", "39–83%")
    assert finding.short == "Race skew in crime labels, parity difference"


@pytest.mark.parametrize("others", [{"smoothed": SMOOTHED}, {"parity": PARITY}, {"smoothed": WEAK, "parity": PARITY}])
def test_a_significant_reading_vetoes_no_evidence_though_every_pair_is_defined(others):
    assert only(rows(estimate(0.4, 0.0, 1.2, 0.09), **others)).tone == "bias"


@pytest.mark.parametrize(
    ("others", "row", "value"),
    [
        ({"smoothed": WEAK, "parity": WEAK_PARITY}, ("max_skew", "smoothed"), "1.3"),
        ({"parity": WEAK_PARITY}, ("parity_difference", "max_minus_min"), "20%"),
    ],
)
def test_without_evidence_over_all_groups_that_is_what_is_said(others, row, value):
    finding = only(rows(**others))
    assert (finding.tone, finding.row, finding.value_text) == ("none", name(*row), value)
    assert finding.short.startswith("no evidence of race skew in crime labels, ")


def test_with_no_other_reading_it_cannot_be_said_and_the_sentence_says_why():
    table = rows()
    finding = only(table)
    assert finding.tone == "undefined" and finding.short == "race skew in crime labels: undefined"
    (told,) = in_sentences([finding], table, table, Reading())
    assert told.sentence.endswith("; 2 of 3 pairs undefined: no event in one group of the pair.")


def test_of_two_groups_the_only_pair_can_be_undefined():
    shares = {"man": (0, 34), "woman": (17, 26)}
    skew = estimate(NAN, reason=reason("undefined_pairs", undefined=1, pairs=1))
    assert only(rows(skew, SMOOTHED, shares=shares, attribute="gender")).tone == "bias"


def test_an_event_that_never_happens_and_an_empty_group_leave_the_skew_its_finding():
    none = dict.fromkeys(SHARES, (0, 20))
    never = estimate(0.0, p=1.0, reason=reason("event_never_happens"))
    finding = only(rows(never, estimate(0.1, p=1.0), estimate(0.0, p=1.0), none))
    assert (finding.tone, finding.row) == ("undefined", name("max_skew", "mean_over_pairs"))
    assert finding.sentence.endswith("gives crime labels to no image: there is nothing to compare by race.")
    some = {"north": (3, 20), "east": (2, 20)}
    empty = estimate(0.5, 0.0, 2.0, 0.5, (reason("empty_groups", empty=1, groups=3), LEFT_OUT))
    assert only(rows(empty, WEAK, shares=some)).row == name("max_skew", "mean_over_pairs")


def test_a_skew_without_an_interval_is_as_strong_as_the_smoothed_one():
    undefined = reason("no_interval_undefined", undefined=1334, resamples=10000)
    shares = {"man": (2, 34), "woman": (17, 26)}
    smoothed = estimate(8.1, 1.9, 44.0, 0.0004)
    finding = only(rows(estimate(10.1, p=0.0004, reason=undefined), smoothed, shares=shares, attribute="gender"))
    assert finding.strength == 1.9 and finding.row == row_id(
        BASE | {"metric": "max_skew", "definition": "mean_over_pairs", "attribute": "gender"}
    )


def test_a_value_without_an_interval_says_why_behind_its_q():
    table = rows(estimate(3.85, p=0.004, reason=reason("no_interval_undefined", undefined=3696, resamples=10000)))
    (said,) = in_sentences([only(table)], table, table, Reading())
    assert "(q = 0.004; no interval: in 37% of the resamples it is undefined" in said.sentence.replace("\u00a0", " ")


# --- which model a headline is of


def test_without_evidence_the_model_with_the_largest_value_is_told():
    shares = {"north": (3, 20), "east": (2, 20)}
    weak = [rows(estimate(v, 0.0, 2.0, 0.5), shares=shares, model=m) for v, m in ((0.0, "a"), (0.68, "b"))]
    (headline,) = headlines(findings(pl.concat(weak)))
    assert headline.model == "b" and headline.company[:3] == (0, 2, 0)


def test_whichever_reading_speaks_of_a_model_counts():
    shares = {"north": (3, 20), "east": (2, 20)}
    fair = rows(estimate(0.0, 0.0, 0.4, 1.0), smoothed=WEAK, shares=shares, model="a")
    (headline,) = headlines(findings(pl.concat([fair, rows(smoothed=SMOOTHED)])))
    assert headline.model == "theirs" and headline.company[:3] == (1, 2, 0)
    other = rows(estimate(2.0, 1.0, 4.0, 0.001), smoothed=WEAK, shares=shares, model="b")
    (headline,) = headlines(findings(pl.concat([fair, other, rows(smoothed=SMOOTHED)])))
    assert headline.row == name("max_skew", "smoothed") and headline.company[:3] == (2, 3, 0)


def test_where_the_two_q_count_differently_both_are_told():
    """The scorecard goes by q over the tests of a kind, a headline by q over all tests that it is picked from."""
    shares = {"north": (3, 20), "east": (2, 20)}
    of_p = {"sure": 0.001, "near": 0.045, "third": 0.5, "fourth": 0.6}
    models = [rows(estimate(1.0, 0.2, 2.0, p), shares=shares, model=model) for model, p in of_p.items()]
    headline, *_ = headline_findings(pl.concat(models), Reading())
    assert headline.company == (1, 4, 0, 2, 0)
    says = "1 of the 4 models asked on portraits shows evidence of it (2 by q over the tests of its kind alone)."
    assert says in headline.sentence.replace("\u00a0", " ")


def test_where_the_two_q_point_to_the_same_models_one_count_is_told():
    shares = {"north": (3, 20), "east": (2, 20)}
    models = [rows(estimate(1.0, 0.2, 2.0, p), shares=shares, model=f"m{p}") for p in (0.001, 0.6)]
    headline, *_ = headline_findings(pl.concat(models), Reading())
    assert headline.sentence.endswith("1 of the 2 models asked on portraits shows evidence of it.")


# --- labels that have no skew

ANIMALS = {"north": (2, 18), "east": (1, 22), "south": (19, 20)}


def animals(parity, shares=ANIMALS, **columns):
    return rows(None, None, parity, shares, event="non_human", **columns)


def test_a_large_difference_in_animal_labels_is_a_finding():
    finding = only(animals(estimate(19 / 20 - 1 / 22, 0.69, 1.0, 0.0004)))
    assert (finding.tone, finding.topic) == ("bias", ("parity", "portraits", "crime", "non_human", "race"))
    assert (finding.short, finding.value_text) == ("Non-human labels by race, parity difference", "90%")
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
    assert headline.company[:3] == (1, 2, 0)
    (other,) = (f for f in findings(both) if f.model == "fair")
    assert (other.tone, other.value_text) == ("none", "0%")


# --- what could have been seen, and what is excluded


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


def test_what_could_have_been_seen_is_at_the_p_of_the_headlines():
    weak = rows(WEAK, shares={"north": (3, 20), "east": (2, 20)}).with_columns(
        detectable_05=pl.lit(0.2), detectable_002=pl.lit(0.3), smallest_detectable=pl.lit(0.9)
    )
    (alone,) = headline_findings(weak, Reading())
    assert "Detectable with 80% power: +20% or more" in alone.sentence
    events = [weak.with_columns(pl.lit(event).alias("event")) for event in ("agency", "communion", "crime")]
    told = [finding.sentence for finding in headline_findings(pl.concat(events), Reading())]
    assert len(told) == 3 and all("80% power: +24% or more" in sentence for sentence in told)


# --- no number that is not there

_NOT_A_NUMBER = re.compile(r"\bnan\b|\b(CI|by|of|to|reaches) (undefined|no interval)", re.IGNORECASE)


def sentences(table, reading=None):
    reading = reading or Reading()
    return in_sentences(findings(table, reading), table, table, reading)


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
    for finding in sentences(without(every_kind, *columns)):
        assert not _NOT_A_NUMBER.search(finding.sentence), finding.sentence
        assert finding.tone == "undefined" or "undefined" not in finding.sentence, finding.sentence


@pytest.mark.parametrize("event", ["crime", "negative_communion", None])
def test_no_sentence_tells_a_value_that_is_not_there(every_kind, event):
    gone = pl.lit(True) if event is None else pl.col("event") == event
    numbers = [pl.when(gone).then(NAN).otherwise(pl.col(c)).alias(c) for c in ("value", "ci_low", "ci_high", "p")]
    for finding in sentences(every_kind.with_columns(numbers, q=pl.when(~gone).then(pl.col("q")))):
        assert not _NOT_A_NUMBER.search(finding.sentence), finding.sentence


EVIDENT = {"as it is": None, "all evident": 1e-7, "none evident": 0.7}


@pytest.mark.parametrize("p", EVIDENT.values(), ids=EVIDENT)
def test_every_number_and_count_of_a_finding_is_that_of_a_row(every_kind, p):
    tested = pl.when(pl.col("p").is_not_nan()).then(pl.lit(p)).otherwise("p")
    table = every_kind.with_columns(pl.col("p") if p is None else tested.alias("p"))
    table = table.with_columns(pl.coalesce(pl.col(name).fill_nan(None), pl.lit(0.37731)) for name in COLUMNS)
    picked, reading = as_picked(table, Reading())
    ids = row_ids(table)
    named, ordinary = (dict(zip(ids, one.to_dicts())) for one in (picked, table))
    question = [name for name in IDENTIFYING if name != "model"]
    every = [one for one in in_sentences(findings(picked, reading), table, picked, reading) if one.row is not None]
    assert every or p == EVIDENT["none evident"]
    for finding in every:
        row = named[finding.row]
        assert (finding.model, finding.dataset) == (row["model"], row["dataset"])
        low, high = (row[name] if row[name] is not None else NAN for name in ("ci_low", "ci_high"))
        assert finding.interval_text in {interval(low, high), percent_interval(low, high), interval(-high, -low)}
        assert finding.q_text in ("–", bare_p(row["q"]))
        shown = {each(sign * (row["value"] or 0.0)) for each in (number, percent) for sign in (1, -1)}
        assert re.sub(r"^\$| sd$| points$", "", finding.value_text) in shown, finding
        if row["metric"] in UNIT_OF and finding.tone != "undefined":
            known = written(row, "value", "ci_low", "q", "smallest_detectable") | groups_of(row, picked)
            if row["metric"] in SIGNED and (least := row["smallest_detectable"]) is not None:
                known |= written(row | {"smallest_detectable": -least}, "smallest_detectable")
            known |= written(ordinary[finding.row], "ci_low", "q") | {str(one) for one in finding.company or ()}
        else:
            known = told(f"{finding.value_text} {finding.interval_text} {finding.q_text}")
        known |= told(finding.short) | told(row["reason"] or "")
        if row["metric"] in OF_METRIC:
            known |= {str(smallest_group(row, OF_METRIC[row["metric"]], picked)), str(row["n"])}
        if lifted := find(row["reason_codes"], "biased_upwards"):  # in points
            known |= told(number(100 * float(lifted.params["bias"])))
        assert told(without_names(finding.sentence, every_kind)) <= known, finding.sentence
        if finding.company and finding.topic[0] in ("skew", "captions"):
            topic = [each for each in every if each.topic == finding.topic and math.isfinite(each.value)]
            of_kind = [named[each.row][Q_OF_KIND] for each in topic if each.tone != "undefined"]
            evident = [each.tone for each in topic].count("bias"), sum((level or NAN) < 0.05 for level in of_kind)
            assert finding.company == (evident[0], len(topic), 0, evident[1], 0), finding
        elif finding.company:
            same = picked.filter(pl.all_horizontal(pl.col(name).eq_missing(pl.lit(row[name])) for name in question))
            for counted, of in (finding.company[:3:2], "q"), (finding.company[3:], Q_OF_KIND):
                levels = [p if q is None or q != q else q for q, p in same.select(of, "p").iter_rows()]
                levels = [level for level in levels if level is not None and level == level]
                assert sum(counted) == sum(level < 0.05 for level in levels), finding
                assert finding.company.tested == len(levels)
    tones = {each.tone for each in every}
    assert p is None or bool(tones & {"bias", "difference"}) is (p != EVIDENT["none evident"])


# --- every figure of what is told of several rows

_FIGURE = re.compile(r"[−+<>]?\d[\d,]*(?:\.\d+)?(?:e−?\d+)?%?")


def test_models_at_chance_are_not_counted_beside_others():
    both = pl.concat([animals(estimate(0.9, 0.7, 1.0, 0.001)), animals(estimate(0.8, 0.6, 1.0, 0.001), model="blind")])
    (counted,) = (f for f in findings(both) if f.model != "blind")
    blind = metric_frame([BASE | {"model": "blind"} | _AT_CHANCE])
    (alone,) = (f for f in findings(pl.concat([both, blind])) if f.model != "blind")
    assert counted.company[:3] == (2, 2, 0) and alone.company[:3] == (1, 1, 0)


def test_of_a_ratio_the_smallest_is_the_strongest():
    """Parity is its largest value: the end of the interval that is nearer to it is the upper one."""
    row = BASE | estimate(0.02, 0.0, 0.1, 0.005) | {"metric": "impact_ratio", "definition": "min_over_max"}
    less = row | {"value": 0.5, "ci_low": 0.3, "ci_high": 0.97}
    told = [
        finding_of(one, Reading(), tone="bias", topic=("own",), short="unequal rates")
        for one in metric_frame([row, less]).to_dicts()
    ]
    assert [one.strength for one in told] == pytest.approx([0.9, 0.03])


def own_texts(row):
    """Return how a sentence may write the numbers of a row."""
    low, high = (row[name] if row[name] is not None else NAN for name in ("ci_low", "ci_high"))
    value = abs(row["value"]) if row["value"] is not None else NAN
    yield from (interval(low, high), percent_interval(low, high), p_value(row["p"]), p_value(row["q"], "q"))
    yield from (number(value), points(value).removesuffix(" points"), percent(value), f"{row['n'] or 0:,}")


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
