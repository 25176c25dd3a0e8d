"""Mitigations: each is fitted on rows that evaluation never sees, and applied to what a model gives."""

from plumbline.mitigation.adjusted_cell import fit_cell
from plumbline.mitigation.adjustment_fit import fit_logit_adjustment
from plumbline.mitigation.adjustment_rows import adjustment_rows
from plumbline.mitigation.logit_adjustment import LogitAdjustment, apply_logit_adjustment

__all__ = [
    "LogitAdjustment",
    "adjustment_rows",
    "apply_logit_adjustment",
    "fit_cell",
    "fit_logit_adjustment",
]
