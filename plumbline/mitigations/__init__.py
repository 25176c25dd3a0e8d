"""Mitigations: what one is fitted on is held out from its evaluation; it is applied to features or logits."""

from plumbline.mitigations.logit_adjustment.adjustment import (
    LogitAdjustment,
    apply_logit_adjustment,
    fit_logit_adjustment,
)
from plumbline.mitigations.logit_adjustment.cells import fit_cell
from plumbline.mitigations.logit_adjustment.rows import adjustment_rows

__all__ = ["LogitAdjustment", "adjustment_rows", "apply_logit_adjustment", "fit_cell", "fit_logit_adjustment"]
