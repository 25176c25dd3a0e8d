"""Intervals of associations: wider where images come in sets, and holding the truth as often as they say."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from only_row import one
from scipy import stats

from benchmarks.calibration.worlds import planted_embeddings
from plumbline.blocks import blocks
from plumbline.metrics.associations import association_estimates, association_rows

SUITES = ("perception", "markedness")


def test_sets_widen_the_intervals_to_what_the_sets_tell(make_cell, quick):
    cell = make_cell(n=200, suites=SUITES)
    copies = 3
    records = pl.concat([cell.records] * copies).with_columns(
        image_id=pl.format("{}-{}", "image_id", pl.int_range(pl.len())), set_id=pl.concat_str(pl.lit("s"), "image_id")
    )
    grouped = replace(
        cell,
        records=records,
        logits={
            name: replace(
                logits, logits=np.tile(logits.logits, (copies, 1)), cosine=np.tile(logits.cosine, (copies, 1))
            )
            for name, logits in cell.logits.items()
        },
    )
    key = {"metric": "sc_weat_statistic", "attribute": "gender", "event": "warmth"}
    plain = one(association_rows(cell, settings=quick), **key)
    sets = one(association_rows(grouped, settings=quick), **key)
    assert sets["value"] == pytest.approx(plain["value"], rel=1e-9) and sets["n"] == copies * plain["n"]
    assert sets["ci_high"] - sets["ci_low"] == pytest.approx(plain["ci_high"] - plain["ci_low"], rel=1e-6)
    apart = one(association_rows(replace(grouped, records=records.drop("set_id")), settings=quick), **key)
    assert apart["ci_high"] - apart["ci_low"] < 0.65 * (plain["ci_high"] - plain["ci_low"])
    widths = {}
    for name, frame in (
        ("plain", cell),
        ("sets", grouped),
        ("apart", replace(grouped, records=records.drop("set_id"))),
    ):
        found = association_rows(frame, settings=replace(quick, resamples=2000))
        row = one(found, metric="markedness", definition="mean_over_templates", attribute="gender", group="man")
        gap = one(found, metric="markedness_gap", attribute="gender")
        widths[name] = np.array([row["ci_high"] - row["ci_low"], gap["ci_high"] - gap["ci_low"]])
    assert widths["sets"] == pytest.approx(widths["plain"], rel=0.15)
    assert (widths["apart"] < 0.7 * widths["plain"]).all()
    # What copies say twice they say once: the test with sets is that of the originals, the intervals' other side.
    tested = association_rows(grouped, settings=quick).filter(definition="cluster_t")
    assert set(tested["metric"]) == {"sc_weat_effect", "weat_effect"} and tested.height == (1 + 7) * (8 + 3)
    row = one(tested, metric="sc_weat_effect", attribute="gender", event="warmth")
    error = (row["ci_high"] - row["ci_low"]) / 2 / stats.t.ppf(0.975, 95)
    assert row["p"] == pytest.approx(2 * stats.t.sf(abs(row["value"]) / error, 95), rel=0.02)
    assert association_rows(cell, settings=quick).filter(definition="cluster_t").height == 0
    few = records.with_columns(set_id=pl.format("s{}", pl.int_range(pl.len()) % 7))
    noted = association_rows(replace(grouped, records=few), settings=quick)
    assert noted["reason"].str.contains(r"from only \d sets").all()


WORLDS = pytest.mark.parametrize("worlds", [100, pytest.param(500, marks=pytest.mark.slow)])


def nominal(worlds):
    """Return the counts between which the hits of a correct 95% interval fall all but once in a thousand runs."""
    return stats.binom.ppf([5e-4, 1 - 5e-4], worlds, 0.95)


@WORLDS
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_intervals_of_effects_hold_the_truth(beta, worlds):
    """Of 500 worlds of 120 images, for s and es of two words and of their category.

    At beta 0: 478, 470; 476, 470; 474, 471. At beta 0.5: 481, 476; 473, 470; 476, 472.
    """

    def world(seed, n):
        generator = np.random.default_rng([seed, n])
        planted = planted_embeddings(n, ["a", "b"], beta=beta, dim=6, rng=generator)
        across = generator.normal(size=6)
        across -= across @ planted.direction * planted.direction
        texts = np.stack([planted.direction, planted.direction + across / np.linalg.norm(across)])
        texts /= np.linalg.norm(texts, axis=1, keepdims=True)
        images = planted.images / np.linalg.norm(planted.images, axis=1, keepdims=True)
        mean = np.full((2, 1), 0.5)
        return association_estimates(images @ texts.T, planted.labels == "a", mean)

    def values(found):
        parts = (found.statistic, found.effect_size, found.mean_statistic, found.mean_effect_size)
        return [np.concatenate([getattr(part, end) for part in parts]) for end in ("value", "ci_low", "ci_high")]

    truth, _, _ = values(world(0, 200_000))
    held = np.array([[low <= truth, truth <= high] for _, low, high in (values(world(s, 120)) for s in range(worlds))])
    hits = held.all(axis=1).sum(axis=0)
    least, most = nominal(worlds)
    assert (hits >= least).all() and (hits <= most).all(), hits


@WORLDS
@pytest.mark.parametrize("groups", ["within", "between"])
def test_intervals_hold_the_truth_where_images_come_in_sets(groups, worlds):
    """Of 500 worlds of 40 sets of four, for s and es.

    Groups within sets: 478, 481 (as if alone: 495, 494); between sets: 481, 478 (as if alone: 416, 410).
    """
    hits, alone = np.zeros(2), np.zeros(2)
    sets = np.repeat(np.arange(40), 4)
    in_a = sets < 20 if groups == "between" else np.tile([True, True, False, False], 40)
    # Variances: level, noise, leaning / 4 (its square share), and a quarter of the difference squared.
    truth = np.array([0.5, 0.5 / np.sqrt(1 + 1 + 0.04 / 4 + 0.25 / 4)])
    for seed in range(worlds):
        generator = np.random.default_rng(seed)
        # A set has a level, and a leaning to the first group.
        level, leaning = generator.normal(size=(2, 40))[:, sets]
        score = level + (0.5 + 0.2 * leaning) * (in_a - 0.5) + generator.normal(size=160)
        for count, clusters in ((hits, sets), (alone, None)):
            found = association_estimates(score[:, None], in_a, np.ones((1, 1)), clusters=clusters)
            for i, part in enumerate((found.statistic, found.effect_size)):
                count[i] += part.ci_low[0] <= truth[i] <= part.ci_high[0]
            # The test and the interval say the same.
            assert (found.statistic.p[0] < 0.05) == (found.statistic.ci_low[0] * found.statistic.ci_high[0] > 0)
    least, most = nominal(worlds)
    assert (hits >= least).all() and (hits <= most).all(), hits
    # Independent images would be less sure where a set is in both groups, and far too sure where it is in one.
    assert (alone > hits).all() if groups == "within" else (alone < 0.88 * worlds).all(), alone


@pytest.mark.parametrize("clustered", [False, True])
def test_columns_some_at_a_time_give_what_all_at_once_give(monkeypatch, clustered):
    rng = np.random.default_rng(0)
    columns, in_a = rng.normal(size=(40, 7)), np.arange(40) < 15
    columns[:, 4:6] = 0.25
    weights = np.array([[1, 0], [0, 0.5], [0, 0.5], [0, 0], [0, 0], [0, 0], [0, 0]])
    clusters = np.arange(40) // 2 if clustered else None
    whole = association_estimates(columns, in_a, weights, clusters=clusters)
    # Two columns at a time, once both of them constant.
    monkeypatch.setattr(
        "plumbline.metrics.associations.blocks", lambda start, stop, width: blocks(start, stop, 500_000)
    )
    for parts, all_at_once in zip(association_estimates(columns, in_a, weights, clusters=clusters), whole):
        assert parts.reason == all_at_once.reason
        for name in ("value", "ci_low", "ci_high", "p", "n"):
            np.testing.assert_allclose(getattr(parts, name), getattr(all_at_once, name), rtol=1e-12)
