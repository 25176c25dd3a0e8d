"""Which column of a user's own table is what: how any folder of images becomes a dataset without new code."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ColumnMap(BaseModel):
    """The column map of the reader `folder`, as the audit file has it under `map`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: str = Field(description="CSV or Parquet table, below the dataset's root")
    path: str = Field(description="its column with each image's path, below the root")
    columns: dict[str, str] = Field(
        default_factory=dict, description="record column, such as `gender` or `split` -> column of the table"
    )
    values: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="record column -> value in the table -> value in the records; without it values are kept",
    )
    classes: str | None = Field(
        default=None,
        description="label set of the Trident suites that one of the columns holds, such as `fairface`",
    )
