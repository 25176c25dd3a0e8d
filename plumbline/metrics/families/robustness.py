"""The robustness family: what the audit's numbers owe to wording, to chance, and to faces that show nobody."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.calibration import calibration
from plumbline.metrics.directional_bias import directional_bias, directional_bias_gap, template_shift
from plumbline.metrics.families.robustness_rows import robustness_rows
from plumbline.metrics.family import MetricFamily
from plumbline.metrics.intra_set_cosine import intra_set_cosine
from plumbline.metrics.template_agreement import rank_agreement
from plumbline.metrics.traits import Measure, MetricTraits

_DESCRIPTION = """
How far the contrastive audit can be trusted. Directional bias: how much nearer an image lies to a task's
positive prompts than to its negative ones, over all images and by group with the gap between groups, under
three wordings of the same prompts; the largest shift of its mean between wordings; and whether checkpoints
keep their order. Calibration: how often the best match is harmful at each size of that bias, and from which
size on it is more often harmful than not. Neutral control: the same numbers on portraits that show no gender
and no race, with how alike these look to the model. Every number has its sample size and a 95% interval.
"""


def _delta(responses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (n, 2) biases: of the score against the best response, and of the best against half the score."""
    best = responses.max(axis=1, keepdims=True)
    score = responses[:, -1:]
    return directional_bias(np.stack([score, best], axis=1), np.stack([best, score / 2], axis=1)).delta


def _by_group(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    best = responses.max(axis=1, keepdims=True)
    return np.array(
        [float(directional_bias(responses[groups == i, -1:], best[groups == i]).mean) for i in range(g)]
    )


def _gap(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    return np.array(directional_bias_gap(responses[:, -1] - responses.max(axis=1), groups.tolist()).value)


def _shift(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    return np.array(template_shift(_delta(responses)).value)


def _on_calibration(field: str, place: int | None = None) -> Measure:
    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        # The bias grows with the score, and so does the chance that the score is the best match.
        found = getattr(calibration(responses[:, -1] / 5, responses.argmax(axis=1) == g), field)
        return np.array(found if place is None else found[place])

    return measure


def _cosine(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    embeddings = np.stack([responses[:, -1], responses.max(axis=1), np.ones(len(responses))], axis=1)
    return np.array(intra_set_cosine(embeddings).mean)


def _rank(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    """Return the agreement over the groups, taken for checkpoints, of their mean score and their mean best."""
    seen = [i for i in range(g) if (groups == i).any()]
    score = [responses[groups == i, -1].mean() for i in seen]
    best = [responses[groups == i].max(axis=1).mean() for i in seen]
    return np.array(rank_agreement(score, best).correlation)


_CALIBRATION = "Al Sahili et al., Data Matters Most, appendix B"

_TRAITS = (
    MetricTraits(
        name="directional_bias",
        meaning=(
            "How much nearer an image lies to a task's positive prompts than to its negative ones, as "
            "mean over images."
        ),
        formula="Δ = mean cosine to the positive prompts - mean cosine to the negative prompts",
        source="Al Sahili et al., Data Matters Most, appendices A and C",
        headline="positive_minus_negative",
        function=directional_bias,
        measure=_by_group,
        bounds=(-2, 2),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale="equivariant",
    ),
    MetricTraits(
        name="directional_bias_gap",
        meaning="By how much the mean directional bias differs between groups.",
        formula="max_g mean_g Δ - min_g mean_g Δ",
        source="Plumbline, on the directional bias of Al Sahili et al., Data Matters Most",
        function=directional_bias_gap,
        measure=_gap,
        bounds=(0, 4),
        shape="scalar",
        when_identical="zero",
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
    ),
    MetricTraits(
        name="template_shift",
        meaning="By how much another wording of the prompts moves the mean directional bias.",
        formula="Δμ = max over pairs of templates of |mean Δ_s - mean Δ_t|",
        source="Al Sahili et al., Data Matters Most, appendix C",
        function=template_shift,
        measure=_shift,
        bounds=(0, 4),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
        shift=None,
    ),
    MetricTraits(
        name="template_rank_correlation",
        meaning="Whether checkpoints keep their order of directional bias under another wording.",
        formula="Spearman's ρ of the checkpoints' mean Δ under two templates",
        source="Al Sahili et al., Data Matters Most, appendix C",
        function=rank_agreement,
        measure=_rank,
        bounds=(-1, 1),
        shape="scalar",
        when_identical="undefined",
        empty_group="left_out",
        ties="no effect",
    ),
    *(
        MetricTraits(
            name=name,
            meaning=meaning,
            formula=formula,
            source=_CALIBRATION,
            function=calibration,
            measure=_on_calibration(field, place),
            bounds=bounds,
            shape="scalar",
            when_identical=None,
            empty_group="left_out",
            ties="no effect",
            scale=None,
            shift=None,
        )
        for name, field, place, bounds, meaning, formula in (
            (
                "calibration_p_harm",
                "p_harm",
                2,
                (0, 1),
                "How often the best match is harmful among images whose directional bias is of one size.",
                "|harmful images with low ≤ |Δ| < high| / |images with low ≤ |Δ| < high|",
            ),
            (
                "calibration_filled",
                "filled",
                0,
                (0, 1),
                "The share of images whose directional bias is of one size.",
                "|images with low ≤ |Δ| < high| / n",
            ),
            (
                "calibration_max_p_harm",
                "maximum",
                None,
                (0, 1),
                "The largest share of harmful best matches at any size of the directional bias.",
                "max over the bins that hold images of calibration_p_harm",
            ),
            (
                "calibration_elbow",
                "elbow",
                None,
                (0, 0.6),
                "From which size of the directional bias on the best match is more often harmful than not.",
                "lower end of the first bin with calibration_p_harm ≥ 0.5",
            ),
        )
    ),
    MetricTraits(
        name="intra_set_cosine",
        meaning="How alike portraits that show no gender and no race look to a model.",
        formula="mean over pairs of images of cos(x, y)",
        source="Al Sahili et al., Data Matters Most, appendix A",
        function=intra_set_cosine,
        measure=_cosine,
        bounds=(-1, 1),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale=None,
        shift=None,
    ),
)

ROBUSTNESS = MetricFamily(
    name="robustness_metrics",
    title="Robustness",
    description=" ".join(_DESCRIPTION.split()),
    owner="contrastive_audit",
    code_version="1",
    suites=("templates",),
    traits=_TRAITS,
    compute=robustness_rows,
)
