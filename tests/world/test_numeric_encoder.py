"""The numeric planted encoder: rates known exactly, equal at beta 0, apart as beta grows."""

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.calibration.worlds import PlantedEmbeddings, planted_embeddings
from plumbline.errors import ConfigError

GROUPS = ("first", "second", "third")


def drawn(n: int, beta: float, *, seed: int = 0, dim: int = 16, base_rate: float = 0.3) -> PlantedEmbeddings:
    rng = np.random.default_rng(seed)
    return planted_embeddings(n, GROUPS, beta=beta, dim=dim, rng=rng, base_rate=base_rate)


def observed(planted: PlantedEmbeddings) -> dict[str, float]:
    hit = (planted.images @ planted.texts.T).argmax(axis=1) == 0
    return {group: float(hit[planted.labels == group].mean()) for group in GROUPS}


def test_shapes_norms_and_group_sizes():
    planted = drawn(100, 0.5)
    assert planted.images.shape == (100, 16)
    assert planted.texts.shape == (2, 16)
    assert np.allclose(np.linalg.norm(planted.texts, axis=1), 1)
    assert sorted(np.unique(planted.labels, return_counts=True)[1]) == [33, 33, 34]


def test_at_beta_zero_every_group_has_the_base_rate():
    assert drawn(10, 0.0).rates == dict.fromkeys(GROUPS, 0.3)


def test_the_rate_is_the_normal_probability_worked_by_hand():
    # Phi(0 + 1 * 1), Phi(0), Phi(-1): the textbook values.
    rates = drawn(10, 1.0, base_rate=0.5).rates
    assert rates == pytest.approx({"first": 0.841344746, "second": 0.5, "third": 0.158655254}, abs=1e-9)


@pytest.mark.parametrize("dim", [1, 4, 64])
def test_observed_rates_are_the_planted_ones(dim):
    planted = drawn(60_000, 0.4, dim=dim)
    for group, rate in observed(planted).items():
        # Five standard errors of a share among 20,000.
        assert rate == pytest.approx(planted.rates[group], abs=0.018)


def test_the_gap_rises_with_beta():
    gaps = [drawn(10, beta).rates["first"] - drawn(10, beta).rates["third"] for beta in np.linspace(0, 2, 9)]
    assert gaps[0] == 0
    assert (np.diff(gaps) > 0).all()


def test_beta_moves_images_along_the_group_direction_only():
    without, moved = drawn(90, 0.0), drawn(90, 0.7)
    shift = moved.images - without.images
    score = {"first": 0.7, "second": 0.0, "third": -0.7}
    expected = np.array([score[label] for label in moved.labels])[:, None] * moved.direction
    assert np.allclose(shift, expected, atol=1e-12)


def test_at_beta_zero_labels_say_nothing_of_the_images():
    # z-tests of the first group against the third over many worlds: the share beyond 1.96 is five in a hundred.
    beyond = 0
    for seed in range(400):
        planted = drawn(600, 0.0, seed=seed)
        rates = observed(planted)
        error = np.sqrt(2 * 0.3 * 0.7 / 200)
        beyond += abs(rates["first"] - rates["third"]) / error > 1.96
    assert 5 <= beyond <= 40


def test_the_same_seed_gives_the_same_world():
    assert np.array_equal(drawn(20, 0.3).images, drawn(20, 0.3).images)
    assert not np.array_equal(drawn(20, 0.3).images, drawn(20, 0.3, seed=1).images)


@pytest.mark.parametrize(
    ("groups", "changes"),
    [(("a",), {}), (("a", "a"), {}), (GROUPS, {"base_rate": 0.0}), (GROUPS, {"base_rate": 1.0}), (GROUPS, {"dim": 0})],
)
def test_what_cannot_be_drawn_is_refused(groups, changes):
    arguments = {"beta": 0.0, "dim": 4, "rng": np.random.default_rng(0)} | changes
    with pytest.raises(ConfigError, match="planted encoder"):
        planted_embeddings(10, groups, **arguments)


def test_the_first_groups_rate_is_phi_of_quantile_plus_beta():
    planted = drawn(10, 0.25)
    assert planted.rates["first"] == pytest.approx(float(ndtr(-0.5244005127080409 + 0.25)), abs=1e-12)
