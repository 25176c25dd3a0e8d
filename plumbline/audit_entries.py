"""The parts of the audit file: datasets, encoders, what is audited on what, and how everything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from plumbline.audit_part import Part
from plumbline.audit_values import (
    AUDITED_SUITES,
    BalancedLabel,
    CheckpointAddress,
    FamilyName,
    FilterName,
    ReaderName,
    Root,
    Shares,
    Slug,
    SourceName,
    SuiteName,
    SuiteNames,
    Wording,
)
from plumbline.datasets.column_map import ColumnMap
from plumbline.datasets.records import Reader
from plumbline.datasets.registry import MAPPED, reader_for
from plumbline.digests import digest_json


class DatasetEntry(Part):
    """A dataset: its reader, its folder, and the shares its labels must have before anything is computed on it."""

    reader: ReaderName = Field(description="how the folder is read")
    root: Root = Field(
        description="a folder, `hf-hub:datasets/ORG/NAME@COMMIT`, or `planted:NAME` for one of the planted world"
    )
    balance: dict[BalancedLabel, Shares] = Field(
        default_factory=dict,
        description="record column, or `COLUMN_gender` with the automatic label -> allowed share of each label",
    )
    filters: dict[SuiteName, FilterName] = Field(
        default_factory=dict, description="suite -> named row filter"
    )
    padding: float | None = Field(
        default=None, description="FairFace exists with 0.25 and 1.25: part of its identity"
    )
    quarantine_rate: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="in place of `thresholds.quarantine_rate`, as for a list with dead links",
    )
    map: ColumnMap | None = Field(
        default=None, description="for the reader `folder`: which column of its table is what"
    )

    @model_validator(mode="after")
    def _map_fits(self) -> DatasetEntry:
        if (self.reader == MAPPED) != (self.map is not None):
            raise ValueError(f"`map` with the reader `{MAPPED}`, and only with it")
        return self

    @property
    def read_as(self) -> str:
        """Return the digest of what is read and how: what is stored under a dataset's name may be of other data."""
        return digest_json(self.model_dump(mode="json", include={"reader", "root", "map", "padding"}))

    def open_reader(self) -> Reader:
        """Return the reader of this dataset."""
        return reader_for(self.reader, self.map)


class EncoderEntry(Part):
    """A checkpoint: `local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT` or an open_clip `ARCHITECTURE/TAG`; see `families`.

    `@fetched` in place of a commit: that of the first `plumbline fetch`.
    """

    address: CheckpointAddress = Field(
        description="`local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT` or `ARCHITECTURE/TAG`"
    )
    family: FamilyName | None = Field(
        default=None, description="which library reads it; found from its files when absent"
    )
    factors: dict[str, str] = Field(
        default_factory=dict, description="design factors, such as size or data source"
    )
    wording: Wording | None = Field(
        default=None, description="of the Trident prompts; that of the encoder's family when absent"
    )
    planted_source: SourceName | None = Field(
        default=None, description="for checkpoints of the planted world: their source"
    )


class AuditEntry(Part):
    """One rectangle of the grid: these encoders on these datasets, with these suites and mitigations."""

    encoders: Literal["all"] | tuple[Slug, ...] = Field(default="all", description="ids of `encoders`")
    datasets: Literal["all"] | tuple[Slug, ...] = Field(default="all", description="ids of `datasets`")
    suites: SuiteNames = Field(
        default=AUDITED_SUITES,
        description="what is asked; when absent all that the encoder and the dataset can answer",
    )
    mitigations: Literal["all"] | tuple[Slug, ...] = Field(
        default="all", description="ids of `mitigations`; none are tried where the list is empty"
    )


class Storage(Part):
    """Where results live and how arrays are cut."""

    root: str | None = Field(
        default=None, description="folder or fsspec address; `.plumbline/lake` when absent"
    )
    shard_rows: int = Field(
        default=4096, ge=1, description="images of a shard: what an interruption can cost"
    )


class Engine(Part):
    """How models run. What could move a number is part of the cache key."""

    batch_rows: int | None = Field(
        default=None,
        ge=1,
        description="images of a forward pass; when absent 64 on a CPU, found once on a GPU",
    )
    workers: int | None = Field(default=None, ge=1, description="decoding threads; one per core when absent")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="auto: bfloat16 on a GPU, float32 on a CPU"
    )
    compile: bool = Field(default=False, description="run the models through torch.compile")
    decoder: Literal["pillow", "fast"] = Field(
        default="pillow",
        description="fast: another JPEG decoder where an encoder only resizes and crops, if embeddings agree",
    )


class Statistics(Part):
    """How uncertainty is computed."""

    seed: int = Field(default=20260801, ge=0, description="the same seed gives the same numbers")
    resamples: int = Field(default=10_000, ge=100, description="of bootstraps")
    permutations: int = Field(default=10_000, ge=100, description="of tests")
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="of intervals")
    min_group: int = Field(default=30, ge=1, description="images; a smaller group is flagged")
    label_margin: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="automatic labels closer than this are left out in a second reading",
    )


class Thresholds(Part):
    """Limits of the quality checks."""

    label_error: float = Field(
        default=0.15, ge=0, le=1, description="largest automatic-label error rate of a group"
    )
    quarantine_rate: float = Field(
        default=0.05, ge=0, le=1, description="largest share of files not accepted"
    )
    regression: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={"max_skew": 0.25, "parity_difference": 0.05, "harm_rate": 0.02, "max_toxicity": 0.05},
        description="metric -> how far it may move away from what is fair between two audits",
    )

    @field_validator("regression")
    @classmethod
    def _known_metrics(cls, limits: dict[str, float]) -> dict[str, float]:
        from plumbline.diff.direction import directed_metrics

        known = directed_metrics()
        if unknown := [name for name in limits if name not in known]:
            raise PydanticCustomError(
                "unknown_metric", "{expected}", {"expected": f"for {unknown[0]}: one of {', '.join(known)}"}
            )
        return limits


class Watch(Part):
    """A folder into which checkpoints are dropped, each a folder named by its id."""

    folder: str = Field(
        description="holds a folder for each checkpoint; relative paths start at the checkout"
    )
    like: Slug = Field(description="id of the encoder or local generative model that they are audited like")
