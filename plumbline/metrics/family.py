"""Metric families: settings, metadata and invariants of metrics, and which metrics are computed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

import polars as pl
from pydantic import ConfigDict, RootModel, Strict
from pydantic.dataclasses import dataclass as checked_dataclass

from plumbline.catalog.files import checked_yaml, entry
from plumbline.catalog.schema import LINEAGE_COLUMNS, MOST_DRAWS, Schema, polars_schema
from plumbline.catalog.suites import MIXED_SUITES
from plumbline.errors import ConfigError
from plumbline.metrics.cell import Cell
from plumbline.reasons import MIN_GROUP
from plumbline.statistics.bootstrap import DrawSettings


@dataclass(frozen=True)
class MetricSettings(DrawSettings):
    """Settings of the metric families: at least 100 resamples and permutations, and a confidence in (0.5, 1).

    Attributes
    ----------
    min_group : int
        Groups with fewer images are still reported, with a note in `reason`.
    label_margin : float
        Automatic gender labels below this margin |p_man - p_woman| are dropped in `confident_labels`, in
        [0, 1].
    label_error : float
        Assumed error rate of automatic gender labels where a dataset has no true ones, in [0, 0.5): it bounds the
        rates by true gender.
    skew_k : int or "auto"
        The k of Skew@k; "auto" is the paper's 1,000, or half of the images where there are fewer than 2,000.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    min_group: int = MIN_GROUP
    label_margin: float = 0.2
    label_error: float = 0.15
    skew_k: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        ranges = {
            "resamples": (100 <= self.resamples <= MOST_DRAWS, f"100 to {MOST_DRAWS:,}"),
            "permutations": (100 <= self.permutations <= MOST_DRAWS, f"100 to {MOST_DRAWS:,}"),
            "confidence": (0.5 < self.confidence < 1, "between 0.5 and 1"),
            "min_group": (self.min_group >= 1, "at least 1"),
            "label_margin": (0 <= self.label_margin <= 1, "0 .. 1"),
            "label_error": (0 <= self.label_error < 0.5, "0 .. below 0.5"),
        }
        for name, (valid, expected) in ranges.items():
            if not valid:
                raise ConfigError(
                    "a statistics setting is out of range",
                    where=f"statistics.{name}",
                    found=getattr(self, name),
                    expected=expected,
                )


Number = Annotated[float, Strict()]
"""A number in a data file; strings and booleans are not converted."""


_STRICT = ConfigDict(extra="forbid")


@checked_dataclass(frozen=True, config=_STRICT)
class Traits:
    """Metadata and invariants of a metric, enforced by the contract tests: an entry of `FAMILY_TABLE`.

    Attributes
    ----------
    name : str
        As in the column `metric`.
    meaning, formula, source : str
        What the metric says, in plain language; its formula, with the definitions in parentheses; the paper and the
        place in it.
    bounds : (float, float)
        Lower and upper bound of every defined value.
    when_identical : float, "equal" or None
        Its value where all groups are treated alike, nan if it is then undefined; "equal" where each group has a value
        and these are then equal; None where the metric does not compare groups.
    headline : str or None
        The definition that stands for the metric where there is room for few numbers, such as MLflow's charts; "*"
        where each is a metric of its own; None where it is not shown there.
    unit : str or None
        Unit of a language metric, such as `score`, `share`, `words`, `US dollars a year`.
    function : str or None
        The function that computes it, by its full name. This and the following attributes apply to image metrics only.
    shape : {"scalar", "by_group"} or None
        One value, or one per group. Renaming groups leaves the first alone and permutes the second.
    empty_group : {"nan", "left_out"} or None
        "nan": an empty group has the value nan; "left_out": a value over several groups ignores empty ones.
    ties : {"lower index wins", "by id", "no effect"}
        How equal responses are resolved: the first candidate wins; equal images are ordered by their id; or ties do
        not affect the metric.
    scale, shift : {"invariant", "equivariant"} or None
        What happens to the value when all responses are multiplied by a positive number (`scale`) or a constant is
        added to them (`shift`): nothing ("invariant"), or the same ("equivariant"). None where neither holds.
    formerly : str or None
        Its name in tables of earlier versions; `current_table` reads such rows by the new name.
    former_definitions : mapping of str to str
        What a definition was called in tables of earlier versions -> what it is called.
    """

    name: str
    meaning: str
    formula: str
    source: str
    bounds: tuple[Number, Number]
    when_identical: Number | Literal["equal"] | None
    headline: str | None = None
    unit: str | None = None
    function: str | None = None
    shape: Literal["scalar", "by_group"] | None = None
    empty_group: Literal["nan", "left_out"] | None = None
    ties: Literal["lower index wins", "by id", "no effect"] = "lower index wins"
    scale: Literal["invariant", "equivariant"] | None = "invariant"
    shift: Literal["invariant", "equivariant"] | None = "invariant"
    formerly: str | None = None
    former_definitions: Mapping[str, str] = field(default_factory=dict)


@checked_dataclass(frozen=True, config=_STRICT)
class Description:
    """What a family of metrics is, for people, and the traits of its metrics in order; see `FAMILY_TABLE`.

    Attributes
    ----------
    title, description : str
        The description is for the person who clicks on the asset.
    metrics : tuple of Traits
    """

    title: str
    description: str
    metrics: tuple[Traits, ...]


EVERY = "*"
"""As `Traits.headline`: every definition is a metric of its own."""
FAMILY_TABLE = "metrics.yaml"
"""The data file of the catalog that describes every family and its metrics."""


@cache
def family_descriptions() -> Mapping[str, Description]:
    """Return the description of every family of metrics by name, as `FAMILY_TABLE` has it.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or a value is wrong.
    """
    path = files("plumbline.catalog") / FAMILY_TABLE
    return checked_yaml(path, RootModel[dict[str, Description]], "the table of metrics").root


CellT = TypeVar("CellT", contravariant=True)
SettingsT = TypeVar("SettingsT", contravariant=True)
ResultT = TypeVar("ResultT", covariant=True)


class Compute(Protocol[CellT, SettingsT, ResultT]):
    """A function from a cell to its metric rows; metrics that do not apply to the cell have no rows."""

    def __call__(self, cell: CellT, *, settings: SettingsT) -> ResultT:
        """Return rows in the schema of `plumbline.catalog.schema`, with further tables where the family has any."""


@dataclass(frozen=True)
class Family(Generic[CellT, SettingsT, ResultT]):
    """Metrics that are computed and shown together, and become one asset.

    Attributes
    ----------
    name : str
        Also the asset's name, and the name of its description in `FAMILY_TABLE`.
    needs : tuple of str
        Required inputs. Image metrics: families of suites (`plumbline.catalog.suites.Suite.family`), of which one is
        enough. Language metrics: `texts`, `scores`, or `base_llm` for the answers of the base language model.
    compute : callable
        `compute(cell, settings=...)` gives the rows.
    tables : mapping of str to Schema
        Name -> schema of its further tables.
    """

    name: str
    needs: tuple[str, ...]
    compute: Compute[CellT, SettingsT, ResultT]
    tables: Mapping[str, Schema] = field(default_factory=dict)

    @property
    def about(self) -> Description:
        """Return its description."""
        return entry(family_descriptions(), self.name, "a family of metrics is not described", FAMILY_TABLE)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of its metrics, as in the column `metric`."""
        return tuple(traits.name for traits in self.about.metrics)


ImageFamily = Family[Cell, MetricSettings, pl.DataFrame]
"""A family of metrics of images: of one encoder on one dataset."""


def family_rows(family: ImageFamily, cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return the rows of one family of one cell, of the suites that it reads; none where the cell has no such suite."""
    read = {name: logits for name, logits in cell.logits.items() if logits.suite.family in family.needs}
    if not read:
        return pl.DataFrame(schema=polars_schema())
    return family.compute(replace(cell, logits=read), settings=settings)


def with_lineage(frame: pl.DataFrame, **known: str | None) -> pl.DataFrame:
    """Fill the lineage columns of metric rows that have their suite's hash already.

    Parameters
    ----------
    known : str or None
        By column: `dataset_digest, checkpoint_sha256, cell_id`, and `labeller_sha256`, which only rows that depend on
        automatic labels get.
    """
    of_labels = pl.when(pl.col("suite").is_in(MIXED_SUITES))
    columns = {name: pl.lit(value, dtype=pl.String) for name, value in known.items()}
    if "labeller_sha256" in columns:
        columns["labeller_sha256"] = of_labels.then(columns["labeller_sha256"])
    lacking = {name: pl.lit(None, dtype=pl.String) for name in LINEAGE_COLUMNS if name != "suite_hash"}
    return frame.with_columns(**(lacking | columns)).select(list(polars_schema())).cast(polars_schema())  # type: ignore[arg-type]


FamilyT = TypeVar("FamilyT", bound=Family[Any, Any, Any])


def families_by_name(*families: FamilyT) -> dict[str, FamilyT]:
    """Return a registry of families."""
    return {family.name: family for family in families}


def former_metric_names() -> dict[str, str]:
    """Return the name that a metric had in earlier versions -> its name."""
    every = (traits for family in family_descriptions().values() for traits in family.metrics)
    return {traits.formerly: traits.name for traits in every if traits.formerly is not None}


def former_definitions() -> dict[tuple[str, str], str]:
    """Return the metric and the name that a definition had in earlier versions -> its name."""
    every = (traits for family in family_descriptions().values() for traits in family.metrics)
    return {(traits.name, old): new for traits in every for old, new in traits.former_definitions.items()}


def traits_by_metric(*families: str) -> dict[str, Traits]:
    """Return the metrics of described families by name."""
    return {traits.name: traits for family in families for traits in family_descriptions()[family].metrics}
