"""The ranking family: whose faces come first when faces are ranked by how well a word fits them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.families.ranking_rows import ranking_rows
from plumbline.metrics.family import MetricFamily
from plumbline.metrics.rankings import max_skew_at_k, ndkl, skew_at_k
from plumbline.metrics.traits import MetricTraits

_DESCRIPTION = """
Whose faces come first when all faces are ranked by how well an adjective of social perception fits them (warm,
competent, untrustworthy, ...). Skew@k: the logarithm of a group's share among the k best over the share it should
have, 0 is fair, ln 2 is twice as often. MaxSkew@k: the largest over groups. NDKL: how far all prefixes of the ranking
are from the desired shares, which chance alone makes positive. Desired are equal shares, or those of the ranked set.
Every number has a bootstrap or jackknife interval and an exact or permutation p-value.
"""

_K = 120
"""Half of the images of the contract test, and a multiple of its groups."""


def _ids(responses: NDArray[np.float64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ids that belong to the images themselves, so that they move with the rows."""
    return np.unique(np.column_stack([responses, groups]), axis=0, return_inverse=True)[1].ravel()


def _skews(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    k = min(_K, len(groups) // 2)
    found = skew_at_k(responses[:, -1], groups, k=k, ids=_ids(responses, groups))
    values = np.full(g, np.nan)
    values[list(found.groups)] = found.value
    return values


def _largest(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    k = min(_K, len(groups) // 2)
    return np.asarray(max_skew_at_k(responses[:, -1], groups, k=k, ids=_ids(responses, groups)).value)


def _divergence(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    return np.asarray(ndkl(responses[:, -1], groups, ids=_ids(responses, groups))[0])


_TRAITS = (
    MetricTraits(
        name="skew_at_k",
        meaning=(
            "Whether a group is more or less frequent among the k best matches of a word than it should "
            "be; ln 2 is twice."
        ),
        formula="ln(share of g among the k best / desired share of g)",
        source="Hausladen et al., Social perception of faces, B.1, equation 8; after Geyik et al. (2019)",
        function=skew_at_k,
        measure=_skews,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="by id",
    ),
    MetricTraits(
        name="max_skew_at_k",
        meaning="The most favoured group's Skew@k.",
        formula="max_g Skew_g@k",
        source="Hausladen et al., Social perception of faces, B.1; after Geyik et al. (2019)",
        headline="equal",
        function=max_skew_at_k,
        measure=_largest,
        bounds=(0, np.inf),
        shape="scalar",
        when_identical="zero",
        empty_group="left_out",
        ties="by id",
    ),
    MetricTraits(
        name="ndkl",
        meaning=(
            "How far the groups' shares in every prefix of a ranking are from the desired ones, the top "
            "counting most. Never 0: read it beside what chance gives."
        ),
        formula="(1/Z) Σ_i KL(D_i ‖ D) / log2(i + 1), Z = Σ_i 1 / log2(i + 1)",
        source=(
            "Hausladen et al., Social perception of faces, B.1, equations 9 and 10; after Geyik et al. (2019)"
        ),
        headline="equal",
        function=ndkl,
        measure=_divergence,
        bounds=(0, np.inf),
        shape="scalar",
        # Even a ranking that deals the groups out in turn has a first image, of one group.
        when_identical=None,
        empty_group="left_out",
        ties="by id",
    ),
)

RANKINGS = MetricFamily(
    name="ranking_metrics",
    title="Social perception: rankings",
    description=" ".join(_DESCRIPTION.split()),
    owner="social_perception",
    code_version="1",
    suites=("perception",),
    traits=_TRAITS,
    compute=ranking_rows,
)
