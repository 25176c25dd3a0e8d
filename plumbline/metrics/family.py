"""A metric family: what is computed together, becomes one asset, and is shown together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import polars as pl

from plumbline.metrics.cell import Cell
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.traits import MetricTraits


class ComputeRows(Protocol):
    """A function from a cell to its metric rows."""

    def __call__(self, cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
        """Return a frame in the schema of `plumbline.tables.schema`."""


@dataclass(frozen=True)
class MetricFamily:
    """Metrics that are computed and shown together.

    Attributes
    ----------
    name : str
        Also the asset's name.
    title : str
        For people.
    description : str
        For the person who clicks on the asset.
    owner : str
        Group that answers for it.
    code_version : str
        Raised whenever the same input would give other numbers.
    suites : tuple of str
        The families of suites it reads, see `plumbline.tables.suites.Suite.family`.
    traits : tuple of MetricTraits
        What each of its metrics promises.
    compute : callable
        `compute(cell, settings=...)` gives the rows; none where the cell lacks the suites or labels.
    """

    name: str
    title: str
    description: str
    owner: str
    code_version: str
    suites: tuple[str, ...]
    traits: tuple[MetricTraits, ...]
    compute: ComputeRows

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of its metrics, as in the column `metric`."""
        return tuple(traits.name for traits in self.traits)
