"""A fitted mitigation as files for a tracking run and for export."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.adjustments import read_adjustments
from assets.cells import StoredCell
from assets.mitigation_fits import read_text_fits
from plumbline.mitigations import LogitAdjustment
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.text_mitigations import FittedMitigation
from plumbline.storage.files import arrays_bytes, csv_bytes


@dataclass(frozen=True)
class MitigationFiles:
    """A fitted mitigation to be handed on: its parameters as safetensors files, and its loss curves, by name."""

    files: Mapping[str, bytes]
    curves: Mapping[str, NDArray[Any]]


def mitigation_files(stored: StoredCell, condition: str) -> MitigationFiles:
    """Return the files and curves of a mitigation of a cell; a logit adjustment has one of each for what it adjusts."""
    fits = read_fits(stored, condition)
    if isinstance(fits, FittedMitigation):
        curves = {f"loss/{name}": losses for name, losses in fits.losses.items()}
        return MitigationFiles({"parameters.safetensors": arrays_bytes(fits.parameters)}, curves)
    files = {f"parameters_{what}.safetensors": arrays_bytes(fit.parameters()) for what, fit in fits.items()}
    ablated = stored.workspace.lake.read_table("adjustment_ablation", partition=stored.partition)
    if (of_condition := ablated.filter(pl.col("condition") == condition)).height:
        files["ablation.csv"] = csv_bytes(of_condition)
    # One curve an adjustment of one suite: the mean over its probes and trials.
    curves = {f"loss/{what}": fit.losses.mean(axis=tuple(range(np.ndim(fit.losses) - 1))) for what, fit in fits.items()}
    return MitigationFiles(files, curves)


def read_fits(stored: StoredCell, condition: str) -> FittedMitigation | dict[str, LogitAdjustment]:
    """Return what is stored of a mitigation of a cell: a fit of texts, or the logit adjustments by what they adjust.

    Raises
    ------
    StorageError
        If it was never fitted, or on other content than the cell has now.
    """
    settings = stored.mitigations[condition]
    if isinstance(settings, LogitAdjustmentSettings):
        return read_adjustments(stored).fits[condition]
    return read_text_fits(stored, settings.method).fits[condition]
