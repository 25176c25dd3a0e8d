"""Trident scores against fractions worked by hand, the obvious loop, and the paper's min-max normalisation."""

import json
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.metrics import normalise_probe_rates, probe_rate_gap, trident_scores
from plumbline.metrics.trident.scores import probe_outcomes, probe_predictions, score_tables
from plumbline.statistics.groups import count_table

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers" / "trident.json").read_text())


def exact(value):
    if isinstance(value, list):
        return [exact(item) for item in value]
    return float("nan") if value == "nan" else float(Fraction(value))


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["source"])
def test_scores_by_hand(case):
    inputs = case["inputs"]
    scores = trident_scores(np.array(inputs["logits"], float), inputs["labels"], n_classes=inputs["n_classes"])
    for name, expected in case["expected"].items():
        value = scores.accuracy.n if name == "n" else getattr(scores, name).value
        np.testing.assert_allclose(value, exact(expected), atol=case["tol"], rtol=0, err_msg=name)


def test_scores_equal_the_loop_over_images():
    rng = np.random.default_rng(2)
    logits, labels = rng.integers(0, 4, (300, 5)).astype(np.float32), rng.integers(0, 4, 300)
    right, probe, total = np.zeros(4), np.zeros(4), np.zeros(4)
    for row, label in zip(logits, labels):
        top = min(i for i in range(5) if row[i] == max(row))
        total[label] += 1
        right[label] += top == label
        probe[label] += top == 4
    scores = trident_scores(logits, labels, n_classes=4)
    np.testing.assert_allclose(scores.class_accuracy.value, right / total)
    np.testing.assert_allclose(scores.probe_rate.value, probe / total)
    assert scores.macro_accuracy.value == pytest.approx((right / total).mean())
    assert scores.macro_accuracy_released.value == pytest.approx((right / total).sum() / 5)
    rate = scores.probe_rate
    assert ((rate.ci_low <= rate.value) & (rate.value <= rate.ci_high)).all()


def test_many_probes_equal_one_test_each():
    rng = np.random.default_rng(3)
    classes, probes = rng.integers(0, 3, (200, 4)).astype(float), rng.integers(0, 3, (200, 6)).astype(float)
    together = probe_predictions(classes, probes)
    for i in range(6):
        alone = np.concatenate([classes, probes[:, [i]]], axis=1).argmax(axis=1)
        np.testing.assert_array_equal(together[i], alone)


def test_no_images_is_undefined():
    scores = trident_scores(np.zeros((0, 3)), np.zeros(0, dtype=int), n_classes=2)
    undefined = [scores.accuracy.value, scores.macro_accuracy.value, *scores.class_accuracy.value]
    assert np.isnan(undefined).all() and scores.accuracy.n == 0


@pytest.mark.parametrize(
    ("logits", "labels"),
    [(np.zeros((2, 3)), [0]), (np.zeros((2, 2)), [0, 1]), (np.zeros((1, 3)), [2]), (np.zeros((1, 3)), [-1]),
     (np.full((1, 3), np.nan), [0]), (np.zeros((1, 3)), [0.5])],
)  # fmt: skip
def test_bad_input_is_refused(logits, labels):
    with pytest.raises(MetricError):
        trident_scores(logits, labels, n_classes=2)


def test_gap_by_hand():
    # Group rates over two probes: (2·1/2 + 2·1)/4 = 3/4 and (1·1/2)/4 = 1/8; the third group is empty.
    assert probe_rate_gap([[0, 2, 2], [3, 1, 0], [0, 0, 0]]) == pytest.approx(5 / 8)
    assert np.isnan(probe_rate_gap([[0, 2, 2], [0, 0, 0]]))
    with pytest.raises(MetricError):
        probe_rate_gap([[1], [2]])


def rate(model, suite, value, **more):
    return {
        "metric": "probe_rate", "definition": "logit", "model": model, "dataset": "d", "suite": suite,
        "condition": "before", "statistic": "estimate", "value": value, "n": 40, "cell_id": "c", **more,
    }  # fmt: skip


def test_normalisation_is_within_an_encoder_and_by_kind_of_test():
    table = metric_frame(
        [rate("a", "trident", 0.1), rate("a", "trident", 0.3), rate("a", "trident_mixed", 0.2),
         rate("a", "trident_mixed", 0.6), rate("b", "trident", 0.9), rate("b", "trident", 0.9),
         rate("a", "trident", 0.99, definition="cosine"), rate("a", "trident", 0.98, condition="logit_adjustment"),
         rate("a", "trident", 0.97, statistic="sd")]
    )  # fmt: skip
    result = normalise_probe_rates(table)

    def values(model, definition, condition="before"):
        chosen = result.filter(model=model, definition=definition, condition=condition)
        return chosen["value"].to_list()

    assert values("a", "single") == pytest.approx([0, 100])
    assert values("a", "mixed") == pytest.approx([0, 100])
    assert values("a", "joint") == pytest.approx([0, 40, 20, 100])
    assert np.isnan(values("b", "single")).all()
    assert set(result.filter(model="b")["reason"]) == {"all rates of the encoder are equal"}
    assert set(result["metric"]) == {"probe_rate_normalised"} and set(result["cell_id"]) == {"c"}
    assert result.columns == table.columns


def test_an_undefined_rate_stays_undefined_and_does_not_move_the_scale():
    table = metric_frame([rate("a", "trident", v) for v in (0.1, float("nan"), 0.3)])
    single = normalise_probe_rates(table).filter(definition="single")
    np.testing.assert_allclose(single["value"].to_numpy(), [0, np.nan, 100])
    assert single["reason"].to_list() == [None, "rate undefined", None]


def test_joint_rows_name_the_labeller_whose_mixed_rates_set_their_scale():
    """Whatever the order of the frames; rows of a model without mixed tests depend on no labeller."""
    table = metric_frame(
        [rate("a", "trident", 0.1), rate("a", "trident_mixed", 0.6, labeller_sha256="e" * 64),
         rate("b", "trident", 0.2), rate("b", "trident", 0.4)]
    )  # fmt: skip
    for ordered in (table, table.reverse()):
        result = normalise_probe_rates(ordered)
        joint = result.filter(definition="joint", model="a")
        assert joint.height == 2 and set(joint["labeller_sha256"]) == {"e" * 64}
        assert result.filter(definition="single")["labeller_sha256"].null_count() == 3
        assert result.filter(definition="joint", model="b")["labeller_sha256"].null_count() == 2


def test_many_tests_over_groups_score_like_one_test_each():
    """The core of the rows, on tables with empty groups, ties and probes that never win."""
    rng = np.random.default_rng(4)
    for n in (0, 7, 60):
        logits, labels = rng.integers(0, 3, (n, 4 + 5)).astype(float), rng.choice([0, 1, 3], n)
        logits[:, 4] = -1
        outcomes = probe_outcomes(logits[:, :4], logits[:, 4:], labels)
        tables = count_table(labels, outcomes, n_groups=4, n_outcomes=3)
        together = score_tables(tables, released_divisor=5)
        for i in range(5):
            alone = trident_scores(logits[:, [0, 1, 2, 3, 4 + i]], labels, n_classes=4)
            for field in fields(alone):
                both = getattr(together, field.name), getattr(alone, field.name)
                for name in ("value", "ci_low", "ci_high", "n"):
                    one, other = getattr(both[0], name)[i], getattr(both[1], name)
                    np.testing.assert_array_equal(one, other, err_msg=field.name)


def test_nothing_to_normalise():
    assert normalise_probe_rates(metric_frame([])).height == 0
