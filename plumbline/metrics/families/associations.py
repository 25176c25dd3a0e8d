"""The association family: which groups a model sees as warm, competent, powerful, and whom it has to name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.families.association_rows import association_rows
from plumbline.metrics.family import MetricFamily
from plumbline.metrics.markedness import markedness, markedness_gap
from plumbline.metrics.sc_weat import sc_weat
from plumbline.metrics.traits import Measure, MetricTraits
from plumbline.metrics.valence_correlation import valence_correlation
from plumbline.metrics.weat import weat

_DESCRIPTION = """
Which groups a model associates with warmth, competence, agency, belief and communion. SC-WEAT compares the
cosines of two groups' faces with a word (the effect size counts standard deviations; positive: the first
group is closer), WEAT those with the positive against the negative words of a dimension. Markedness is the
percentage of a group's faces that lie closer to "a photo of a person" than to the prompt that names the
group: 100 is unmarked, low is marked. Valence correlation says whether faces closer to the positive words
are also closer to the negative ones. Every number has its sample size and a 95% interval; comparisons of
groups have a permutation p-value.
"""


GroupValue = Callable[[NDArray[np.float64], NDArray[np.bool_], int], float]
"""Takes responses, the images of a group, and the group; gives its value."""


def _by_group(value: GroupValue) -> Measure:
    """Return the measure of a metric of one group against the others; sums depend on their order in the last bits."""

    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        return np.round([value(responses, groups == i, i) for i in range(g)], 12)

    return measure


def _sc_weat(field: str) -> Measure:
    def value(responses: NDArray[np.float64], inside: NDArray[np.bool_], _: int) -> float:
        found = sc_weat(responses[:, -1:], inside, permutations=1, rng=np.random.default_rng(0))
        return float(getattr(found, field)[0])

    return _by_group(value)


def _weat(responses: NDArray[np.float64], inside: NDArray[np.bool_], _: int) -> float:
    # Embeddings of two dimensions, the score and a constant; the attributes are their directions.
    embeddings = np.column_stack([responses[:, -1], np.ones(len(responses))])
    rng = np.random.default_rng(0)
    return weat(
        embeddings[inside], embeddings[~inside], [[1, 0]], [[0, 1]], permutations=1, rng=rng
    ).effect_size


def _markedness(responses: NDArray[np.float64], inside: NDArray[np.bool_], i: int) -> float:
    return markedness(responses[inside, -1], responses[inside, i]).percent


def _correlation(responses: NDArray[np.float64], inside: NDArray[np.bool_], i: int) -> float:
    return valence_correlation(responses[inside, i], responses[inside, -1]).value


def _gap(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    # The same mark for every group, so that groups that are answered alike have no gap.
    mark = responses[:, :-1].max(axis=1)
    return np.asarray(
        markedness_gap([markedness(responses[groups == i, -1], mark[groups == i]).percent for i in range(g)])
    )


_TRAITS = (
    MetricTraits(
        name="sc_weat_effect",
        meaning=(
            "How much closer a group's images lie to a word, or a scale of words, than those of its "
            "reference; in standard deviations."
        ),
        formula=(
            "es = s / sd over A and B of cos(x, z), s = mean over A of cos(x, a) - mean over B of cos(x, b)"
        ),
        source=(
            "Hausladen et al., Social perception of faces, A.2, equations 2 to 6; after Steed & Caliskan "
            "(2021)"
        ),
        headline="paper",
        function=sc_weat,
        measure=_sc_weat("effect_size"),
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
    ),
    MetricTraits(
        name="sc_weat_statistic",
        meaning="The same as a difference of cosines.",
        formula="s = mean over A of cos(x, a) - mean over B of cos(x, b)",
        source="Hausladen et al., Social perception of faces, A.2, equation 2",
        function=sc_weat,
        measure=_sc_weat("statistic"),
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale="equivariant",
    ),
    MetricTraits(
        name="weat_effect",
        meaning=(
            "Whether a group lies nearer the one pole of a dimension and its reference nearer the other, "
            "in standard deviations."
        ),
        formula=(
            "d = (mean over X of s - mean over Y of s) / sd of s over X and Y, s(w) = mean over A of "
            "cos(w, a) - mean over B of cos(w, b)"
        ),
        source="Caliskan, Bryson & Narayanan (2017); with images, Steed & Caliskan (2021)",
        headline="paper",
        function=weat,
        measure=_by_group(_weat),
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale=None,
        shift=None,
    ),
    MetricTraits(
        name="markedness",
        meaning=(
            "For how many images of a group the plain prompt fits better than the one that names the group."
        ),
        formula="100 · |images with cos(neutral) > cos(marked)| / n_g, averaged over templates",
        source="Hausladen et al., Social perception of faces, A.3, equation 7; after Wolfe & Caliskan (2022)",
        function=markedness,
        measure=_by_group(_markedness),
        bounds=(0, 100),
        shape="by_group",
        when_identical=None,
        empty_group="nan",
    ),
    MetricTraits(
        name="markedness_gap",
        meaning="By how many percentage points markedness differs between groups.",
        formula="max_g m_g - min_g m_g",
        source="Plumbline, on the markedness of Hausladen et al., Social perception of faces, A.3",
        headline="mean_over_templates",
        function=markedness_gap,
        measure=_gap,
        bounds=(0, 100),
        shape="scalar",
        when_identical="zero",
        empty_group="left_out",
    ),
    MetricTraits(
        name="valence_correlation",
        meaning=(
            "Whether a model that sees more of a good trait in a face sees less of its opposite; above 0 "
            "it sees more of both."
        ),
        formula=(
            "Pearson's r over a group's images of their mean cosines with the positive and with the "
            "negative words"
        ),
        source="Hausladen et al., Social perception of faces, appendix C and figure C.5",
        function=valence_correlation,
        measure=_by_group(_correlation),
        bounds=(-1, 1),
        shape="by_group",
        when_identical=None,
        empty_group="nan",
        ties="no effect",
    ),
)

ASSOCIATIONS = MetricFamily(
    name="association_metrics",
    title="Social perception: associations",
    description=" ".join(_DESCRIPTION.split()),
    owner="social_perception",
    code_version="1",
    suites=("perception", "markedness"),
    traits=_TRAITS,
    compute=association_rows,
)
