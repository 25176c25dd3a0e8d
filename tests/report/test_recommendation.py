"""The rule by which a mitigation is recommended, case by case, and that its sentences claim no more than it."""

import polars as pl
import pytest
from synthetic_transfer import transfer_row

from plumbline.metrics.paired.mitigations import TRANSFER_SCHEMA
from plumbline.mitigations.settings import METHODS
from plumbline.reasons import reason
from plumbline.report import Reading
from plumbline.report.chapters.mitigations import glance_listing
from plumbline.report.recommendation import advice, first_to_try, foremost, recommended
from plumbline.report.transfer import row_title, row_words, tried
from plumbline.report.vocabulary import listed

BETTER, WORSE, SAME = -0.4, 0.3, 0.02
GENDER_CRIME = {"kind": "axis", "suite": "crime", "event": "crime", "attribute": "gender"}
RACE_AGENCY = {"kind": "axis", "suite": "agency", "event": "negative_agency", "attribute": "race"}
AGE_CRIME = GENDER_CRIME | {"attribute": "age_group"}
OWN_WORDS = {"kind": "axis", "suite": "jobs", "event": "low_paid", "attribute": "gender"}
PARITY = GENDER_CRIME | {"metric": "parity_difference", "definition": "max_minus_min", "value_before": 0.2}
OTHER_PARITY = PARITY | {"attribute": "race"}
SEEN = {"smallest_detectable": 0.05}
HARM = {
    "kind": "harm", "metric": "harm_rate", "definition": "top1", "suite": "crime", "event": "crime",
    "value_before": 0.5,
}  # fmt: skip
MEAN = {"suite": "outcomes", "event": "mean_of_tasks"}
ACCURACY = {
    "kind": "cost", "metric": "zero_shot_accuracy", "definition": "macro", "suite": "trident",
    "value_before": 0.9,
}  # fmt: skip
RECALL = {"kind": "cost", "metric": "retrieval_recall", "definition": "recall@1", "suite": None, "value_before": 0.8}
COSTS = [(ACCURACY, -0.1), (RECALL, -0.2)]
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
    return advice(candidates(leaking, **mitigations), Reading()).replace("\u00a0", " ")


def glance(leaking=(), **mitigations):
    """Return mitigation -> (what it changes, its largest cost, how it works, what else is to be known)."""
    return {row[0]: row[1:] for row in glance_listing(candidates(leaking, **mitigations)).rows}


CASES = {
    "it improves an axis and nothing gets worse": ({"a": [(GENDER_CRIME, BETTER), (ACCURACY, SAME)]}, "a"),
    "a harm rate is enough": ({"a": [(HARM, BETTER), (GENDER_CRIME | SEEN, SAME)]}, "a"),
    "a harm rate, where a gap might have doubled unseen": (
        {"a": [(HARM, BETTER), (GENDER_CRIME | SEEN, SAME), (RACE_AGENCY, SAME)]}, None,
    ),
    "the mean over the tasks is no further harm rate": ({"a": [(HARM | MEAN, BETTER)]}, None),
    "nothing improves": ({"a": [(GENDER_CRIME, SAME), (HARM, SAME)]}, None),
    "an axis of other groups alone is not one of the six": ({"a": [(AGE_CRIME, BETTER)]}, None),
    "a gap in words of the audit's own": ({"a": [(OWN_WORDS, BETTER)]}, "a"),
    "a gap by an attribute of the dataset's own": ({"a": [(GENDER_CRIME | {"attribute": "disability"}, BETTER)]}, "a"),
    "a crossed attribute of the dataset's own": (
        {"a": [(GENDER_CRIME | {"attribute": "disability × gender"}, BETTER)]}, None,
    ),
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
    assert "0.70" not in told(("a",), **effects)
    assert any(row[-1].startswith("for comparison only") for row in glance(("a",), **effects).values())


def test_the_recommended_one_is_told_in_numbers_and_without_a_claim_of_absence():
    better = [(GENDER_CRIME, BETTER), (RACE_AGENCY, SAME), (HARM, -0.01)]
    said = (
        "For clip on faces use Bias Prompts: it lowers gender skew in crime labels by 0.40 (95% CI 0.32–0.48; "
        "q = 0.002); no evidence that it makes anything worse"
    )
    assert told(bias_prompts=[*better, (ACCURACY, -0.01)]) == f"{said}."
    assert told(bias_prompts=better) == f"{said}; what it costs was not measured."


def test_why_none_is_recommended_is_said():
    none = "For clip on faces the one mitigation cannot be recommended: "
    helps = "the one that improves a bias measure also"
    for effects, why in (
        ([(GENDER_CRIME, BETTER), (RACE_AGENCY, WORSE)], f"{helps} makes another worse."),
        ([(GENDER_CRIME, BETTER), (ACCURACY, -0.2)], f"{helps} costs accuracy."),
        ([(GENDER_CRIME, SAME)], "there is no evidence in 2,100 images that one improves a bias measure."),
        (
            [(GENDER_CRIME, SAME), (RACE_AGENCY, WORSE)],
            "there is no evidence in 2,100 images that one improves a bias measure; Bias Prompts (a) makes race "
            "skew in negative agency words worse.",
        ),
        ([(PROBES, BETTER)], "none was judged on the bias measures."),
    ):  # fmt: skip
        assert told(a=effects) == none + why


@pytest.mark.parametrize("effects", [[(GENDER_CRIME, SAME)], [(HARM, BETTER), (GENDER_CRIME, SAME)]])
def test_beside_no_evidence_stands_which_change_would_have_been_found(effects):
    rows = frame(a=effects).with_columns(smallest_detectable=pl.lit(0.12))
    said = advice(tried(rows, dataset="faces", model="clip"), Reading())
    assert "no evidence" in said and said.count(" (detectable: 0.12 in gender skew in crime labels)") == 1


def test_a_table_says_what_each_changes_costs_and_needs():
    shown = glance(
        **{"prompt_array-x": [(GENDER_CRIME, BETTER), (RACE_AGENCY, WORSE), (HARM, WORSE), *COSTS]},
        saner=[(GENDER_CRIME, float("nan"))],
        logit_adjustment=[(PROBES, BETTER)],
    )
    changed, cost, how, note = shown["Prompt Array (prompt_array-x)"]
    assert changed == "1 better, 2 worse of 3; costs" and note == ""
    assert cost.startswith("recall") and cost.endswith("−20 points"), "the largest, of whichever kind"
    assert "gradients through the text encoder" in how
    assert shown["SANER"][3] == "undefined comparisons: 1"
    (disputed,) = glance(a=[(GENDER_CRIME, BETTER), (PARITY, WORSE)]).values()
    assert disputed[3] == "readings disagree: the parity difference by gender in crime labels gets worse"
    assert shown["Logit adjustment"][0] == "not judged"


def skews(verdict, *values):
    events = ("crime", "negative_communion", "negative_agency", "mean_of_tasks")
    what = GENDER_CRIME | {"metric": "max_skew", "definition": "mean_over_pairs", "verdict": verdict}
    return [
        transfer_row("m", "d", "c", "saner", value=value, **(what | {"event": event}))
        for event, value in zip(events, values)
    ]


def test_changes_of_every_unit_are_among_the_foremost():
    rows = skews("worsened", 0.9, 0.8, 0.7)
    harm = transfer_row("m", "d", "c", "saner", value=0.02, **(HARM | {"verdict": "worsened"}))
    known = [row | {"compared_skew": "mean_over_pairs"} for row in [*rows, harm]]
    assert [row["value"] for row in foremost(known, 3)] == [0.9, 0.02, 0.8]


def test_skews_of_other_pairs_than_before_are_judged_by_the_smoothed_one():
    few = "before: 8 of 9 pairs undefined: no event in one group of the pair"
    smoothed = GENDER_CRIME | {"definition": "smoothed", "value_before": 27.0}
    partial = [(GENDER_CRIME | {"reason": few, "value_before": 24.0}, 10 * BETTER), (smoothed, SAME)]
    assert "there is no evidence" in advice(candidates(a=partial), Reading())
    (one,) = candidates(a=[*partial[:1], (smoothed, BETTER)])
    assert [row_words(row) for row in one.closed] == ["smoothed gender skew in crime labels"]
    assert row_title(one.closed[0]) == "gender: crime labels, smoothed"


def test_what_closes_a_gap_in_own_words_is_not_said_to_improve_nothing():
    dear = candidates(bias_prompts=[(OWN_WORDS, BETTER), (ACCURACY, -WORSE)])
    told = advice(dear, Reading())
    assert "cannot be recommended: the one that improves a bias measure also costs accuracy." in told


def test_retrieval_by_sentences_of_labels_is_told_as_that():
    """What a mitigation takes out of texts is what such sentences ask for: it is no loss of other searches."""
    of_labels = str(reason("captions_of_labels"))
    recall = ACCURACY | {"metric": "retrieval_recall", "definition": "image_to_text@5", "suite": "retrieval"}
    for why, cost, title in (
        (None, "costs retrieval.", "recall@5, image to text"),
        (of_labels, "costs retrieval by sentences of the labels, which a mitigation may be meant to blur.",
         "recall@5, image to label sentence"),
    ):  # fmt: skip
        (one,) = candidates(a=[(GENDER_CRIME, BETTER), (recall | {"reason": why}, -0.5)])
        assert advice([one], Reading()).endswith(cost)
        assert [row_title(row) for row in one.of("retrieval")] == [title]


def test_the_largest_change_that_might_have_been_missed_is_told():
    race = GENDER_CRIME | {"attribute": "race", "smallest_detectable": 2.6}
    rows = [
        (GENDER_CRIME | {"smallest_detectable": 0.61}, SAME),
        (race, SAME),
        (HARM | {"smallest_detectable": 0.9}, SAME),
    ]
    told = advice(candidates(a=[(RACE_AGENCY, BETTER), *rows]), Reading())
    assert "use " in told and "(detectable: 2.6 in race skew in crime labels)" in told


def test_enumerations():
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"], [])] == [
        "a", "a and b", "a, b and c", "nothing",
    ]  # fmt: skip


def test_where_none_was_tried_what_is_recommended_elsewhere_is_named_and_nothing_else():
    gap = candidates(saner=[(GENDER_CRIME, BETTER), (HARM, BETTER)], bias_prompts=[(HARM, BETTER)])
    assert first_to_try("x", [gap]) == (
        "No mitigation was tried on x. Try first SANER: on clip (faces) it lowers 1 of 1 gap between groups "
        "and 1 harm rate; no evidence that it makes anything worse."
    )
    dear = candidates(saner=[(GENDER_CRIME, BETTER), (ACCURACY, -WORSE)])
    widening = candidates(saner=[(GENDER_CRIME, BETTER), (RACE_AGENCY, WORSE)], bias_prompts=[(HARM, BETTER)])
    for elsewhere in (dear, widening):
        said = first_to_try("x", [elsewhere])
        assert "on other models none was seen to close a gap without a loss, so that none can be suggested" in said
        assert "SANER" not in said
    assert first_to_try("x", [candidates(saner=[(GENDER_CRIME, SAME)])]) == "Try mitigations on x; none was tried."


def test_a_mitigation_that_lowers_a_rate_and_no_gap_is_told_as_that():
    assert "no evidence that it closes a gap" in told(saner=[(HARM, BETTER)])
    assert "no evidence that it closes a gap" not in told(saner=[(HARM, BETTER), (GENDER_CRIME, BETTER)])


def test_a_gap_that_is_closed_by_another_reading_is_no_gap_that_was_not_closed():
    """Where one group alone gets a label, Max Skew is undefined, and the parity difference says what became of it."""
    said = told(adjusted=[(HARM, BETTER), (PARITY, BETTER)])
    assert "it lowers the parity difference by gender in crime labels by 40 points" in said
    assert "no evidence that it closes a gap" not in said
    assert "no evidence that it closes a gap" in told(adjusted=[(HARM, BETTER), (PARITY, SAME)])
