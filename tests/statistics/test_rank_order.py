"""Rankings: highest first, ties by id, whatever the floats look like."""

import numpy as np
import pytest

from plumbline.errors import MetricError
from plumbline.statistics.rankings import rank_order


def by_hand(column, ids):
    return sorted(range(len(column)), key=lambda i: (-column[i], ids[i], i))


@pytest.mark.parametrize("kind", ["random", "float32", "few levels", "last bits", "zeros", "huge", "subnormal"])
@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 700])
def test_the_order_is_that_of_plain_sorting(kind, n):
    rng = np.random.default_rng(n)
    normal = rng.normal(size=(n, 3))
    scores = {
        "random": normal,
        "float32": normal.astype(np.float32).astype(np.float64),
        "few levels": np.round(normal),
        # Neighbouring floats: they differ only in the bits that the fast way gives up.
        "last bits": 0.25 + np.spacing(0.25) * rng.integers(0, 50, (n, 3)),
        "zeros": rng.choice([0.0, -0.0, 1.0, -1.0], (n, 3)),
        "huge": normal * 1e300,
        "subnormal": normal * 1e-310,
    }[kind]
    ids = [f"{i:04d}" for i in rng.permutation(n)]
    for given, names in ((ids, ids), (None, [""] * n)):
        order = rank_order(scores, given)
        assert order.shape == (3, n)
        for j in range(3):
            assert order[j].tolist() == by_hand(scores[:, j].tolist(), names)


def test_one_column_may_be_flat_and_whole_numbers_rank_too():
    assert rank_order([3, 1, 2]).tolist() == [[0, 2, 1]]


@pytest.mark.parametrize("bad", [[1.0, float("nan")], [1.0, float("inf")], [[[1.0]]]])
def test_scores_that_cannot_be_ranked_are_refused(bad):
    with pytest.raises(MetricError, match="one finite score"):
        rank_order(bad)


def test_ids_are_one_an_image():
    with pytest.raises(MetricError, match="one id per image"):
        rank_order([1.0, 2.0], ["a"])
