"""The rule by which a mitigation is recommended, case by case, and that its sentences claim no more than it."""

import polars as pl
import pytest
from synthetic_transfer import transfer_row

from plumbline.metrics.paired.mitigations import TRANSFER_SCHEMA
from plumbline.mitigations.settings import METHODS
from plumbline.report import Reading
from plumbline.report.recommendation import advice, changed, foremost, recommended
from plumbline.report.transfer import tried
from plumbline.report.vocabulary import listed

BETTER, WORSE, SAME = -0.4, 0.3, 0.02
GENDER_CRIME = {"kind": "axis", "suite": "crime", "event": "crime", "attribute": "gender"}
RACE_AGENCY = {"kind": "axis", "suite": "agency", "event": "negative_agency", "attribute": "race"}
AGE_CRIME = GENDER_CRIME | {"attribute": "age_group"}
PARITY = GENDER_CRIME | {"metric": "parity_difference", "definition": "max_minus_min", "value_before": 0.2}
OTHER_PARITY = PARITY | {"attribute": "race"}
HARM = {
    "kind": "harm", "metric": "harm_rate", "definition": "top1", "suite": "crime", "event": "crime",
    "value_before": 0.5,
}  # fmt: skip
MEAN = {"suite": "outcomes", "event": "mean_of_tasks"}
ACCURACY = {
    "kind": "cost", "metric": "zero_shot_accuracy", "definition": "macro", "suite": "trident",
    "value_before": 0.9,
}  # fmt: skip
PROBES = {
    "kind": "trident", "metric": "probe_rate", "definition": "by_valence", "suite": "trident",
    "event": "negative", "value_before": 0.5,
}  # fmt: skip


def frame(**mitigations):
    """Return a transfer frame of one cell: id -> its rows as (what, change)."""
    rows = []
    for name, effects in mitigations.items():
        method = next((m for m in METHODS if name.startswith(m)), "bias_prompts")
        for what, value in effects:
            columns = {"metric": "max_skew", "definition": "mean_over_pairs"} | what
            rows.append(transfer_row("clip", "faces", name, method, **columns, value=value))
    return pl.DataFrame(rows, schema=dict(TRANSFER_SCHEMA))


def candidates(leaking=(), **mitigations):
    return tried(frame(**mitigations), dataset="faces", model="clip", leaking=leaking)


def told(leaking=(), **mitigations):
    said = advice(candidates(leaking, **mitigations), Reading())
    return [text.replace("\u00a0", " ") for text in said]


CASES = {
    "it improves an axis and nothing gets worse": ({"a": [(GENDER_CRIME, BETTER), (ACCURACY, SAME)]}, "a"),
    "a harm rate is enough": ({"a": [(HARM, BETTER), (GENDER_CRIME, SAME)]}, "a"),
    "the mean over the tasks is no further harm rate": ({"a": [(HARM | MEAN, BETTER)]}, None),
    "nothing improves": ({"a": [(GENDER_CRIME, SAME), (HARM, SAME)]}, None),
    "an axis of other groups alone is not one of the six": ({"a": [(AGE_CRIME, BETTER)]}, None),
    "a probe alone is no axis": ({"a": [(PROBES, BETTER)]}, None),
    "another axis gets worse": ({"a": [(GENDER_CRIME, BETTER), (RACE_AGENCY, WORSE)]}, None),
    "an axis of other groups gets worse": ({"a": [(GENDER_CRIME, BETTER), (AGE_CRIME, WORSE)]}, None),
    "a harm rate gets worse": ({"a": [(GENDER_CRIME, BETTER), (HARM, WORSE)]}, None),
    "another axis gets worse by another reading": ({"a": [(GENDER_CRIME, BETTER), (OTHER_PARITY, WORSE)]}, None),
    "the readings of the improved axis disagree": ({"a": [(GENDER_CRIME, BETTER), (PARITY, WORSE)]}, "a"),
    "accuracy falls": ({"a": [(GENDER_CRIME, BETTER), (ACCURACY, -0.2)]}, None),
    "accuracy rises": ({"a": [(GENDER_CRIME, BETTER), (ACCURACY, 0.09)]}, "a"),
    "the rest is undefined": ({"a": [(GENDER_CRIME, BETTER), (RACE_AGENCY, float("nan"))]}, "a"),
    "most axes first": (
        {"a": [(GENDER_CRIME, -0.7)], "b": [(GENDER_CRIME, BETTER), (RACE_AGENCY, -0.2)]}, "b",
    ),
    "then the larger mean": ({"a": [(GENDER_CRIME, -0.3)], "b": [(GENDER_CRIME, BETTER)]}, "b"),
    "then harm rates": (
        {"a": [(GENDER_CRIME, BETTER)], "b": [(GENDER_CRIME, BETTER), (HARM, BETTER)]}, "b",
    ),
    "the better one moves bias": (
        {"a": [(GENDER_CRIME, -0.1)], "b": [(GENDER_CRIME, -0.7), (RACE_AGENCY, WORSE)]}, "a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_rule(case):
    effects, expected = CASES[case]
    chosen = recommended(candidates(**effects))
    assert (chosen.condition if chosen else None) == expected


def test_what_leaks_is_never_recommended():
    effects = {"a": [(GENDER_CRIME, -0.7)], "b": [(GENDER_CRIME, BETTER)]}
    assert recommended(candidates(**effects)).condition == "a"
    assert recommended(candidates(("a",), **effects)).condition == "b"
    assert "shown for comparison only" in told(("a",), **effects)[1]
    assert "0.70" not in " ".join(told(("a",), **effects))


def test_the_recommended_one_is_told_in_numbers_and_without_a_claim_of_absence():
    said = told(bias_prompts=[(GENDER_CRIME, BETTER), (RACE_AGENCY, SAME), (HARM, -0.01), (ACCURACY, -0.01)])
    assert said == [
        "For clip on faces, use Bias Prompts. It lowers gender skew in crime labels by 0.40 (95% CI 0.32–0.48; "
        "q = 0.002; 0.80 → 0.40; n = 2,100). There is no evidence that it makes any of the 3 bias measures "
        "worse, or that it costs accuracy or retrieval; the intervals still allow +0.10 in race skew in negative "
        "agency words, +7.0 points in the share of images given crime labels and −9.0 points in zero-shot accuracy "
        "(macro). It acts on the features of texts: it needs neither labels nor training."
    ]


def test_what_moves_bias_is_named_with_both_sides():
    answer, other = told(**{"prompt_array-x": [(GENDER_CRIME, BETTER), (RACE_AGENCY, WORSE), (HARM, WORSE)]})
    assert answer == (
        "For clip on faces, no mitigation that was tried can be recommended: the one that improves a bias measure "
        "also makes another worse."
    )
    assert other.startswith("Prompt Array (prompt_array-x) lowers gender skew in crime labels by 0.40 (95% CI")
    assert ", but raises race skew in negative agency words by 0.30 (95% CI 0.22–0.38;" in other
    assert "and the share of images given crime labels by 30 points (95% CI 22–38 points;" in other
    assert "gradients through the text encoder" in other


def test_a_cost_is_told():
    answer, other = told(a=[(GENDER_CRIME, BETTER), (ACCURACY, -0.2)])
    assert answer.endswith("also costs accuracy or retrieval.")
    assert "and it costs: it lowers zero-shot accuracy (macro) by 20 points (95% CI 12–28 points;" in other


def test_no_evidence_is_not_no_effect():
    answer, silent = told(bias_prompts=[(GENDER_CRIME, SAME)], saner=[(GENDER_CRIME, -SAME)])
    assert answer.endswith("there is no evidence in 2,100 images that one improves a bias measure.")
    assert silent == (
        "There is no evidence that Bias Prompts and SANER change anything. This does not show that they change "
        "nothing; the intervals still allow +0.10 in gender skew in crime labels."
    )


def test_what_is_undefined_is_said():
    assert "Of SANER nothing can be said" in told(saner=[(GENDER_CRIME, float("nan"))])[1]
    (said,) = told(saner=[(GENDER_CRIME, BETTER), (RACE_AGENCY, float("nan"))])
    assert "Nothing can be said of 1 of its comparisons (undefined)." in said
    assert "what it costs was not measured" in said


def test_what_is_judged_on_probes_alone_is_said_to_be_so():
    answer, other = told(logit_adjustment=[(PROBES, BETTER), (ACCURACY, 0.09)])
    assert answer.endswith("none was judged on the bias measures.")
    assert other.startswith("Logit adjustment is not judged on the bias measures, only on the Trident probes.")
    assert "There it lowers the share of images taken for a negative probe word by 40 points" in other
    assert "It raises zero-shot accuracy (macro) by 9.0 points" in other
    assert "needs the list of candidate labels" in other


def test_probes_and_disagreeing_readings_are_told_of_the_recommended_one():
    (said,) = told(a=[(GENDER_CRIME, BETTER), (PARITY, WORSE), (PROBES, WORSE)])
    assert "Readings disagree: it raises the parity difference by gender in crime labels by 30 points" in said
    assert "On the Trident probes it improves 0 and worsens 1 of 1 rates, most of all the share of images" in said


def test_a_second_that_passes_is_told_as_such():
    _, other = told(a=[(GENDER_CRIME, -0.3)], b=[(GENDER_CRIME, BETTER)])
    assert "It passes the same rule and improves fewer of the six, or by less." in other


def skews(verdict, *values):
    events = ("crime", "negative_communion", "negative_agency", "mean_of_tasks")
    what = GENDER_CRIME | {"metric": "max_skew", "definition": "mean_over_pairs", "verdict": verdict}
    return [
        transfer_row("m", "d", "c", "saner", value=value, **(what | {"event": event}))
        for event, value in zip(events, values)
    ]


def test_the_largest_changes_are_told_in_numbers_and_the_rest_counted():
    said = changed(skews("improved", -0.1, -0.3, -0.2, -0.4), 0.9)
    assert said.count("90% CI") == 2 and said.index("the three tasks by 0.40") < said.index("communion words by 0.30")
    assert "crime" not in said and said.endswith(") and improves 2 more")
    said = changed(skews("worsened", 0.1, -0.3), 0.9, most=1)
    assert said.startswith("lowers gender skew in negative communion words by 0.30 (90% CI 0.22–0.38;")
    assert said.endswith("; n\u00a0=\u00a02,100) and worsens 1 more")


def test_falls_are_told_before_rises():
    said = changed(skews("worsened", 0.3, -0.2), 0.95)
    assert said.startswith("lowers gender skew in negative communion") and " and raises gender skew in crime" in said


def test_changes_of_every_unit_are_among_the_foremost():
    rows = skews("worsened", 0.9, 0.8, 0.7)
    harm = transfer_row("m", "d", "c", "saner", value=0.02, **(HARM | {"verdict": "worsened"}))
    assert [row["value"] for row in foremost([*rows, harm], 3)] == [0.9, 0.02, 0.8]


def test_enumerations():
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"], [])] == [
        "a", "a and b", "a, b and c", "nothing",
    ]  # fmt: skip
