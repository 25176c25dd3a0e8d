"""The confound family: what pose, lighting, a smile and age do to what a model sees in a face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.metrics.attribute_changes import compare_changes, mean_change
from plumbline.metrics.confounds import confound_fit
from plumbline.metrics.families.confound_rows import confound_rows
from plumbline.metrics.family import MetricFamily
from plumbline.metrics.level_means import level_means
from plumbline.metrics.traits import Measure, MetricTraits

_DESCRIPTION = """
How far a model's reading of a face follows things that say nothing about the person, on synthetic faces in
which one thing is varied at a time. For pose, lighting and smiling, and for age: the mean perceived trait at
every level; the slope of a straight line through it, with its errors as in the paper and with errors that
respect that the faces of one seed are one person; and whether changing a confound moves the reading as much
as changing gender, race or age. Every number has its sample size, an interval and, where it tests something,
a p-value.
"""


def _own_and_last(
    responses: NDArray[np.float64], groups: NDArray[np.int64], g: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the response of each image to its own class, and to the last candidate."""
    return responses[np.arange(len(groups)), groups], responses[:, g]


def _of_line(read: Callable[..., float]) -> Measure:
    """Return a number of the line of the last response on the response to the own class."""

    def measure(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
        return np.asarray(read(confound_fit(*_own_and_last(responses, groups, g))))

    return measure


def _level(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    return level_means(groups, responses[:, g], levels=range(g)).value


def _change(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    own, last = _own_and_last(responses, groups, g)
    return np.asarray(mean_change(np.abs(last - own)).value)


def _comparison(responses: NDArray[np.float64], groups: NDArray[np.int64], g: int) -> NDArray[np.float64]:
    own, last = _own_and_last(responses, groups, g)
    return np.asarray(compare_changes(np.abs(last), np.abs(own)).difference)


_OF_A_LINE: dict[str, Any] = {
    "function": confound_fit,
    "shape": "scalar",
    "when_identical": None,
    "empty_group": "left_out",
    "ties": "no effect",
}

_TRAITS = (
    MetricTraits(
        name="confound_slope",
        meaning="By how much the perceived trait moves with a step of pose, lighting, smiling or age.",
        formula="β of outcome ~ α + β · level, least squares over the words of all images",
        source="Hausladen et al., Social perception of faces, appendix B.2",
        headline="cluster",
        measure=_of_line(lambda fit: fit.slope.value),
        bounds=(-np.inf, np.inf),
        **_OF_A_LINE,
    ),
    MetricTraits(
        name="confound_intercept",
        meaning="The perceived trait at level 0 of pose, lighting, smiling or age.",
        formula="α of outcome ~ α + β · level",
        source="Hausladen et al., Social perception of faces, appendix B.2",
        measure=_of_line(lambda fit: fit.intercept.value),
        bounds=(-np.inf, np.inf),
        scale="equivariant",
        # Level and outcome are shifted together.
        shift=None,
        **_OF_A_LINE,
    ),
    MetricTraits(
        name="confound_r_squared",
        meaning=(
            "The share of the variance of the perceived trait that a straight line through the levels "
            "explains."
        ),
        formula="R² of outcome ~ α + β · level",
        source="Hausladen et al., Social perception of faces, appendix B.2",
        measure=_of_line(lambda fit: fit.r_squared),
        bounds=(0, 1),
        **_OF_A_LINE,
    ),
    MetricTraits(
        name="perception_by_level",
        meaning="The mean perceived trait at one level of pose, lighting, smiling or age.",
        formula="mean over the images of a level of the outcome",
        source="Hausladen et al., Social perception of faces, appendix B.2 and figure B.2",
        function=level_means,
        measure=_level,
        bounds=(-np.inf, np.inf),
        shape="by_group",
        when_identical="equal",
        empty_group="nan",
        ties="no effect",
        scale="equivariant",
        shift="equivariant",
    ),
    MetricTraits(
        name="attribute_change",
        meaning="By how much the perceived trait moves when one thing about a face is changed.",
        formula="mean over pairs of images of a set that differ in this alone of |difference of the outcome|",
        source="Hausladen et al., Social perception of faces, table B.2 and figure 4",
        function=mean_change,
        measure=_change,
        bounds=(0, np.inf),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
    ),
    MetricTraits(
        name="confound_vs_protected",
        meaning=(
            "Whether changing a confound moves the reading as much as changing gender, race or age; below "
            "0: less."
        ),
        formula="mean change by the confound - mean change by the protected attribute",
        source="Hausladen et al., Social perception of faces, table B.2",
        function=compare_changes,
        measure=_comparison,
        bounds=(-np.inf, np.inf),
        shape="scalar",
        when_identical=None,
        empty_group="left_out",
        ties="no effect",
        scale="equivariant",
        # Absolute values are taken after the shift.
        shift=None,
    ),
)

CONFOUNDS = MetricFamily(
    name="confound_metrics",
    title="Confounds",
    description=" ".join(_DESCRIPTION.split()),
    owner="social_perception",
    code_version="1",
    suites=("perception",),
    traits=_TRAITS,
    compute=confound_rows,
)
