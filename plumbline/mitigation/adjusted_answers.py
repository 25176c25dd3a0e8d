"""What each one-probe test answers with an adjustment's first trial, to compare with those before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plumbline.mitigation.adjusted_cell import AuditedCell, required_tests
from plumbline.mitigation.adjustment_descent import adjust
from plumbline.mitigation.logit_adjustment import LogitAdjustment

JUDGED_TRIAL = 0
"""Image-by-image comparisons need one set of factors and one set of test rows: the first trial's."""


def adjusted_winners(cell: AuditedCell, adjustment: LogitAdjustment) -> NDArray[np.int64]:
    """Return the top-1 of every image in every one-probe test, adjusted with the first trial's factors.

    Parameters
    ----------
    adjustment : LogitAdjustment
        From `fit_cell` on this cell.

    Returns
    -------
    (p, n) int64
        Position among the classes, C for the probe; ties to the lower index. All n rows of the records have
        one; the rows that the first trial was not fitted on count.

    Raises
    ------
    MetricError
        If the adjustment is not one of this cell.
    """
    return _adjusted(cell, adjustment).argmax(axis=-1)


def class_winners(cell: AuditedCell, adjustment: LogitAdjustment) -> NDArray[np.int64]:
    """Return the top-1 among the classes alone, with the same factors: (p, n) int64, 0 .. C - 1.

    Each test has factors of its own, so the probes differ here too.

    Raises
    ------
    MetricError
        If the adjustment is not one of this cell.
    """
    return _adjusted(cell, adjustment)[..., :-1].argmax(axis=-1)


def _adjusted(cell: AuditedCell, adjustment: LogitAdjustment) -> NDArray[np.float64]:
    responses = required_tests(cell, adjustment.candidates).responses.astype(np.float64)
    adjustment.check_fits(responses)
    return adjust(responses, adjustment.factors[:, JUDGED_TRIAL], adjustment.mode)
