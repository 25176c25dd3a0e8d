"""From something committed to the lake to what the UI shows of it."""

import re
from functools import cache
from typing import Any

import dagster as dg
import polars as pl

from plumbline.catalog.files import data_yaml
from plumbline.storage import Committed, Lake
from plumbline.visible import unlinked, visible
from resources import served

OWNERS = ["team:plumbline"]

# What Markdown would obey: a text from a model or a file must not become a link or a picture.
_MARKED, _ESCAPED = re.compile(r"[\\`*_\[\]()!~|#]"), r"\\\g<0>"


def materialised(
    committed: Committed, *, lake: Lake, frame: pl.DataFrame | None = None, asset: str | None = None, **metadata: Any
) -> dg.MaterializeResult:
    """Report a commit: the content's sha256 is the data version, so an equal result makes nothing stale."""
    # What a person looks for stands first.
    shown: dict[str, Any] = {
        **metadata,
        "dagster/row_count": committed.rows,
        "path": dg.MetadataValue.path(str(lake.folder(committed.name, committed.partition))),
        "sha256": committed.sha256,
    }
    if frame is not None:
        shown["dagster/column_schema"] = dg.TableSchema(
            [
                dg.TableColumn(name, str(kind), description=column_description(asset or committed.name, name))
                for name, kind in frame.schema.items()
            ]
        )
        shown["preview"] = dg.MetadataValue.md(markdown_table(frame.head(8)))
    return dg.MaterializeResult(asset_key=asset, metadata=shown, data_version=dg.DataVersion(committed.sha256))


def column_description(table: str, column: str) -> str | None:
    """Return what a column of a stored table holds; None of a table of a user's own."""
    known = _columns()
    described: str | None = known["tables"].get(table, {}).get(column, known["columns"].get(column))
    return described


@cache
def _columns() -> dict[str, dict[str, Any]]:
    columns: dict[str, dict[str, Any]] = data_yaml("columns.yaml")
    return columns


def report_link(model: str, dataset: str | None = None) -> dg.MetadataValue:
    """Return a link to the numbers of a model in the report, as `plumbline ui` serves it."""
    title = model if dataset is None else f"{model} on {dataset}"
    return dg.MetadataValue.md(f"[{_inline(title)}]({served.report_of(model, dataset)})")


def same_columns(frame: pl.DataFrame, *upstream: str) -> dg.TableColumnLineage:
    """Return the lineage of a table whose columns are those of its upstream tables."""
    deps = {c: [dg.TableColumnDep(asset_key=dg.AssetKey(a), column_name=c) for a in upstream] for c in frame.columns}
    return dg.TableColumnLineage(deps_by_column=deps)


def markdown_table(frame: pl.DataFrame) -> str:
    """Return a frame as a Markdown table; columns that are null throughout are left out."""
    shown = frame.select([c for c in frame.columns if frame[c].null_count() < frame.height or not frame.height])
    lines = ["| " + " | ".join(map(_inline, shown.columns)) + " |", "|" + "---|" * shown.width]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in shown.iter_rows()]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return _inline(f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value))


def _inline(text: str) -> str:
    """Return a text as it can stand in a line of Markdown: nothing in it is obeyed, nothing hides."""
    return _MARKED.sub(_ESCAPED, unlinked(visible(text, longest=80))).replace("<", "&lt;")
