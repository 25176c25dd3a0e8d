"""The text space by hand: cosines within and across valences, their tests, their intervals, and principal axes."""

import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from plumbline.catalog.schema import METRIC_SCHEMA
from plumbline.catalog.suites import load_suite
from plumbline.errors import MetricError
from plumbline.metrics import MetricSettings
from plumbline.metrics.text_space import (
    GEOMETRY_SCHEMA,
    TEXT,
    bare_word_rows,
    geometry_rows,
    geometry_words,
    prompt_embeddings,
    valence_geometry,
)
from plumbline.reasons import in_words

SUITE = load_suite("perception")
TRIALS = 400
HALF = math.sqrt(0.5)


def one(embeddings, positive, **options):
    valences = ["positive"] * positive + ["negative"] * (np.shape(embeddings)[-2] - positive)
    return valence_geometry(embeddings, dimensions=["a"] * len(valences), valences=valences, **options)


def drawn(seed, *, positive=6, negative=6, apart=0.0, width=24):
    """Draw words around a common direction; `apart` moves the valences along the first axis."""
    rng = np.random.default_rng(seed)
    words = rng.normal(size=(positive + negative, width)) + 0.8
    words[:positive, 0] += apart
    words[positive:, 0] -= apart
    return words


def test_cosines_worked_by_hand():
    # Two positive words at 0° and 60°, two negative at 90° and 180°, of any length.
    angles, lengths = np.radians([0, 60, 90, 180]), np.array([1.0, 3.0, 0.5, 2.0])
    found = one(lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1), 2)
    (only,) = found.dimensions
    assert only.positive.value == pytest.approx(1 / 2) and only.negative.value == pytest.approx(0, abs=1e-12)
    # 0°-90°: 0, 0°-180°: -1, 60°-90°: √3/2, 60°-180°: -1/2.
    across = (0 - 1 + math.sqrt(3) / 2 - 1 / 2) / 4
    assert only.cross.value == pytest.approx(across, rel=1e-12)
    assert only.positive_gap.value == pytest.approx(1 / 2 - across, rel=1e-12)
    assert (only.positive.n, only.cross.n, only.positive_gap.n) == (2, 4, 4)
    # A valence of two words cannot lose one.
    assert math.isnan(only.positive.ci_low) and "too few words" in in_words(only.positive.reason)
    assert found.cosines[0, 1] == pytest.approx(1 / 2) and np.diag(found.cosines) == pytest.approx(1)


def test_templates_are_averaged_as_unit_vectors_or_as_cosines():
    # One word turns from 0° to 90° over two templates, the other stays at 0°.
    turning, still = [[5.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [7.0, 0.0]]
    words = np.array([turning, still]).transpose(1, 0, 2)
    assert one(words, 1).cosines[0, 1] == pytest.approx(HALF, rel=1e-12)
    assert one(words, 1, average="cosines").cosines[0, 1] == pytest.approx(1 / 2, rel=1e-12)
    assert one(words[0], 1).cosines[0, 1] == pytest.approx(1)


def test_the_t_test_is_that_of_scipy():
    found = one(drawn(5, positive=4, negative=5, apart=0.5), 4)
    cosines, gap = found.cosines, found.dimensions[0].negative_gap
    within = [cosines[i, j] for i, j in combinations(range(4, 9), 2)]
    expected = stats.ttest_ind(within, cosines[:4, 4:].ravel(), alternative="greater")
    assert (gap.t, gap.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-10)


def test_the_permutation_test_is_the_slow_one():
    found = one(drawn(6, positive=3, negative=4, apart=0.6), 3)

    def gap(first):
        rest = [i for i in range(7) if i not in first]
        inside = np.mean([found.cosines[i, j] for i, j in combinations(first, 2)])
        return inside - np.mean([found.cosines[i, j] for i in first for j in rest])

    values = np.array([gap(first) for first in combinations(range(7), 3)])
    expected = np.mean(values >= gap((0, 1, 2)) - 1e-12)
    assert found.dimensions[0].positive_gap.p_permutation == pytest.approx(expected, rel=1e-12)
    assert len(values) == 35


def test_valences_that_are_apart_are_found_and_valences_that_are_not_are_not():
    clear = one(drawn(7, apart=4.0), 6).dimensions[0].positive_gap
    # The observed deal and the one with the valences exchanged are the most extreme of 924.
    assert clear.ci_low > 0 and clear.p < 1e-6 and clear.p_permutation <= 2 / 924
    rejected = np.zeros(2)
    for seed in range(TRIALS):
        gap = one(drawn(seed), 6).dimensions[0].positive_gap
        rejected += [gap.p < 0.05, gap.p_permutation <= 0.05]
    # Pairs share words: the paper's test rejects in about 10% of 400 draws without a difference, the other in 5%.
    assert rejected[1] <= stats.binom.ppf(1 - 5e-4, TRIALS, 0.05)
    assert rejected[0] > rejected[1]


@pytest.mark.parametrize(("words", "apart"), [(4, 0.0), (6, 1.0)])
def test_intervals_hold_the_cosine_of_all_words_there_could_be(words, apart):
    """95 to 98% of 400 draws of 4 or 6 words a valence, within, across, and for the difference."""
    many = drawn(0, positive=3000, negative=3000, apart=apart)
    many /= np.linalg.norm(many, axis=1, keepdims=True)
    inside = (many[:3000].sum(axis=0) ** 2).sum() - 3000
    across = float(many[:3000].mean(axis=0) @ many[3000:].mean(axis=0))
    truth = (inside / (3000 * 2999), across, inside / (3000 * 2999) - across)
    hits = np.zeros(3)
    for seed in range(1, TRIALS + 1):
        (only,) = one(drawn(seed, positive=words, negative=words, apart=apart), words).dimensions
        found = (only.positive, only.cross, only.positive_gap)
        hits += [e.ci_low <= t <= e.ci_high for e, t in zip(found, truth)]
    assert (hits >= stats.binom.ppf(5e-4, TRIALS, 0.95)).all() and (hits < TRIALS).all()


def test_principal_axes_keep_distances_and_fall_in_strength():
    found = one(drawn(8, width=3), 6)
    unit = drawn(8, width=3) / np.linalg.norm(drawn(8, width=3), axis=1, keepdims=True)
    apart = np.linalg.norm(unit[:, None] - unit[None], axis=-1)
    np.testing.assert_allclose(
        np.linalg.norm(found.coordinates[:, None] - found.coordinates[None], axis=-1), apart, atol=1e-12
    )
    assert found.shares.sum() == pytest.approx(1) and (np.diff(found.shares) <= 0).all()
    np.testing.assert_allclose(found.coordinates.mean(axis=0), 0, atol=1e-12)
    variance = np.linalg.eigvalsh(np.cov(unit.T))[::-1]
    np.testing.assert_allclose(found.shares, variance / variance.sum(), rtol=1e-9)


def test_axes_point_to_the_word_that_is_farthest_out():
    words = drawn(9)
    for order in (np.arange(12), np.random.default_rng(1).permutation(12)):
        coordinates = one(words[order], 6).coordinates
        farthest = np.abs(coordinates).argmax(axis=0)
        assert (coordinates[farthest, range(3)] > 0).all()
        np.testing.assert_allclose(coordinates[np.argsort(order)], one(words, 6).coordinates, atol=1e-9)
    # Turning the whole space changes no coordinate.
    turn, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(24, 24)))
    np.testing.assert_allclose(one(words @ turn, 6).coordinates, one(words, 6).coordinates, atol=1e-9)


def test_axes_that_the_words_do_not_span_are_undefined():
    flat = one(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]), 2)
    assert np.isfinite(flat.coordinates[:, :2]).all() and np.isnan(flat.coordinates[:, 2]).all()
    same = one(np.ones((4, 5)), 2)
    assert np.isnan(same.coordinates).all() and np.isnan(same.shares).all()
    gap = same.dimensions[0].positive_gap
    assert gap.value == pytest.approx(0, abs=1e-12) and math.isnan(gap.p) and gap.p_permutation == 1


def test_wrong_input_is_refused():
    with pytest.raises(MetricError, match="another valence"):
        valence_geometry(np.ones((2, 3)), dimensions=["a", "a"], valences=["positive", "good"])
    with pytest.raises(MetricError, match="needs an embedding"):
        valence_geometry(np.ones((2, 3)), dimensions=["a"], valences=["positive"])
    with pytest.raises(MetricError, match="no direction"):
        one(np.zeros((4, 3)), 2)


# --- rows


@pytest.fixture(scope="module")
def embedded():
    rng = np.random.default_rng(0)
    return {text: rng.normal(size=16).astype(np.float32) + 1 for text in SUITE.texts}


def test_prompts_are_found_by_template_and_word(embedded):
    vectors = prompt_embeddings(SUITE, embedded)
    assert vectors.shape == (4, 32, 16)
    np.testing.assert_array_equal(vectors[1, 3], embedded["A wealthy person."])
    fewer = {text: v for text, v in embedded.items() if text != "A wealthy person."}
    with pytest.raises(MetricError, match=r"1 prompts of the suite `perception`[\s\S]*A wealthy person"):
        prompt_embeddings(SUITE, fewer)


def test_rows_are_of_the_text_space_and_complete(embedded):
    vectors = prompt_embeddings(SUITE, embedded)
    rows = geometry_rows("encoder", SUITE, vectors, settings=MetricSettings())
    assert rows.columns == list(METRIC_SCHEMA)
    assert set(rows["dataset"]) == {TEXT} and set(rows["model"]) == {"encoder"}
    key = ["metric", "definition", "attribute", "group", "k"]
    assert rows.select(key).is_duplicated().sum() == 0
    assert rows.filter(metric="valence_cosine").height == 2 * 3 * 3
    gaps = rows.filter(metric="valence_gap")
    assert gaps.height == 3 * 3 * 2 and set(gaps["attribute"]) == {"agency", "belief", "communion"}
    assert rows.filter(metric="text_axis_share")["value"].is_between(0, 1).all()
    assert gaps["p"].is_between(0, 1).all() and gaps["n"].to_list().count(8) == 3 * 2
    value = gaps.filter(attribute="belief", group="negative", definition="ttest")["value"].item()
    mean = {
        g: rows.filter(metric="valence_cosine", definition="template_mean", attribute="belief", group=g)["value"].item()
        for g in ("negative", "cross")
    }
    assert value == pytest.approx(mean["negative"] - mean["cross"], rel=1e-12)


def test_words_without_a_template_are_another_reading(embedded):
    bare = load_suite("perception_words")
    assert "poor" in bare.texts and "A poor person." not in bare.texts and bare.scales == SUITE.scales
    rng = np.random.default_rng(3)
    alone = prompt_embeddings(bare, {text: rng.normal(size=16).astype(np.float32) for text in bare.texts})
    rows = bare_word_rows("encoder", bare, alone, settings=MetricSettings())
    in_templates = geometry_rows("encoder", SUITE, prompt_embeddings(SUITE, embedded), settings=MetricSettings())
    assert rows["definition"].unique().to_list() == ["bare_words"]
    assert rows["metric"].value_counts().sort("metric").rows() == [("valence_cosine", 9), ("valence_gap", 6)]
    key = {"metric": "valence_gap", "attribute": "agency", "group": "positive"}
    assert rows.filter(**key)["value"].item() != in_templates.filter(definition="ttest", **key)["value"].item()


def test_words_have_coordinates_and_cosines_in_their_order(embedded):
    vectors = prompt_embeddings(SUITE, embedded)
    words = geometry_words("encoder", SUITE, vectors, settings=MetricSettings())
    assert dict(words.schema) == GEOMETRY_SCHEMA and words.height == 32
    cosines = np.array(words["cosines"].to_list())
    assert cosines.shape == (32, 32) and np.diag(cosines) == pytest.approx(1)
    place = words["word"].to_list()
    first = words.filter(pl.col("word") == "poor").row(0, named=True)
    assert first["cosines"][place.index("wealthy")] == cosines[place.index("wealthy"), place.index("poor")]
    assert (first["dimension"], first["valence"]) == ("agency", "negative")
