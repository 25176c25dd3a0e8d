"""What a metric family reads: one encoder on one dataset, with all that was computed for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.tables.suites import Suite


@dataclass(frozen=True)
class SuiteLogits:
    """Responses of one encoder to every image of a dataset and every candidate of a suite.

    Attributes
    ----------
    dot : (n, m) float32
        Raw image-text dot products, neither normalised nor scaled. Rows follow the records, columns the suite.
    image_norm, text_norm : (n,), (m,) float32
        Euclidean norms, so that cosine = dot / (image_norm * text_norm).
    logit_scale : float
        The checkpoint's own scale (the exponentiated temperature).
    """

    suite: Suite
    dot: NDArray[np.float32]
    image_norm: NDArray[np.float32]
    text_norm: NDArray[np.float32]
    logit_scale: float

    @cached_property
    def cosine(self) -> NDArray[np.float32]:
        """Return the (n, m) cosines."""
        return self.dot / self.image_norm[:, None] / self.text_norm[None, :]


@dataclass(frozen=True)
class Cell:
    """One encoder × dataset.

    Attributes
    ----------
    records : DataFrame
        One row an accepted image: `image_id, split, gender, race, age_group, ...` and the automatic labels
        `auto_gender, auto_gender_probability, auto_gender_margin`. Rows follow the logits.
    logits : mapping of str to SuiteLogits
        By suite id.
    keep : mapping of str to (n,) bool
        By suite id: the rows that the audit's named filter keeps for that suite (all, where absent).
    """

    model: str
    dataset: str
    records: pl.DataFrame
    logits: Mapping[str, SuiteLogits]
    keep: Mapping[str, NDArray[np.bool_]]

    def rows(self, suite: str) -> NDArray[np.bool_]:
        """Return the (n,) bool mask of rows that count for a suite."""
        mask = self.keep.get(suite)
        return np.ones(self.records.height, dtype=bool) if mask is None else mask
