"""The explanation of one row of the metric table of an audit."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
from upath import UPath

from assets.answers import StoredAnswers
from assets.asked_cells import declaration_of
from assets.cells import CELL_TABLES, StoredCell
from assets.language import LANGUAGE_TABLES, language_settings
from assets.lineage import answer_chain, cell_chain, dataset_root, stored_link, table_links, text_chain
from assets.metrics import metric_settings
from plumbline.catalog.schema import row_ids
from plumbline.catalog.suites import all_suites
from plumbline.datasets.filters import chosen_filters, subsets
from plumbline.errors import PlumblineError
from plumbline.metrics.registry import current_table
from plumbline.provenance.chain import Link
from plumbline.provenance.explanation import Explanation, Thumbnail, render_explanation, thumbnail
from plumbline.provenance.influence import Influence, encoder_influence, language_influence, same_measure
from plumbline.report.html import explanations_folder
from plumbline.storage import Committed
from plumbline.storage.files import commit_bytes
from resources.workspace import Workspace

_TEXTS = "text"
# Functions of counts of answers.
QUICK = ("max_skew", "parity_difference", "impact_ratio", "harm_rate", "outcome_proportion")


def quick_pages(workspace: Workspace, table: pl.DataFrame, rows: Sequence[str]) -> set[str]:
    """Write the pages of those rows whose influence takes no computation of a whole metric family.

    Parameters
    ----------
    table : DataFrame
        The metric table of now.
    rows : sequence of str
        Names of rows.

    Returns
    -------
    set of str
        The rows that have a page now, also one that was written for the same audit before.
    """
    if table.is_empty():
        return set()
    folder = workspace.report.parent / explanations_folder(table["audit_id"][0])
    quick = table.filter(
        pl.col("metric").is_in(QUICK), pl.col("suite").is_in(_suites(workspace)), pl.col("condition") == "before"
    )
    verified: dict[str, Link] = {}
    chosen = quick.with_columns(row_ids(quick)).filter(pl.col("row_id").is_in(list(rows)))
    for row in chosen.iter_rows(named=True):
        try:
            shown = workspace.audit.shows_pictures(row["dataset"])
            explained = explain(workspace, row, verified, pictures=shown)
            write_page(folder / f"{row['row_id']}.html", explained, title=workspace.audit.title)
        except PlumblineError as error:
            dg.get_dagster_logger().warning("row %s was not explained: %s", row["row_id"], error)
    return {path.stem for path in folder.glob("*.html")} & set(rows)


def _suites(workspace: Workspace) -> list[str]:
    return ["outcomes", *(suite.id for suite in all_suites(workspace.own_suites) if suite.family == "outcomes")]


def write_page(path: Path, explanation: Explanation, *, title: str) -> None:
    """Write the page of an explanation; beside others of its audit it links back to the report."""
    again = f"plumbline explain {explanation.id} --audit {explanation.row['audit_id'][:12]}"
    beside = path.parent.as_posix().endswith(explanations_folder(explanation.row["audit_id"]))
    page = render_explanation(explanation, title=title, command=again, report="../../report.html" if beside else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    commit_bytes(UPath(path), page.encode())


def explain(
    workspace: Workspace, row: Mapping[str, Any], verified: dict[str, Link] | None = None, *, pictures: bool = True
) -> Explanation:
    """Explain a row of the metric table of an audit.

    Parameters
    ----------
    workspace : Workspace
        Of the audit, with its record as `past`.
    verified : dict, optional
        Links of dataset folders by dataset, found and kept here: of many rows a folder is then read once.

    Notes
    -----
    Nothing that is missing upstream ends in an error: what cannot be followed is said where it stands in the chain.
    """
    chain = tuple(_chain(workspace, row, {} if verified is None else verified))
    try:
        influence = _influence(workspace, row)
    except PlumblineError as error:
        influence = Influence(f"Not available: what it would be computed from cannot be read. {error.what}.")
    shown = _thumbnails(workspace, row, influence, pictures=pictures)
    return Explanation(row, chain, influence, shown, _subset(workspace, row))


def _subset(workspace: Workspace, row: Mapping[str, Any]) -> str:
    """Return which images of the dataset the suite of a row is asked about; empty where all are, or nobody knows."""
    dataset, suite = row["dataset"], row["suite"]
    if dataset not in workspace.audit.datasets:
        return ""
    try:
        declared = declaration_of(workspace, dataset)
    except PlumblineError:
        return ""
    return subsets(chosen_filters(workspace.audit.datasets[dataset].filters, declared, [suite])).get(suite, "")


def _chain(workspace: Workspace, row: Mapping[str, Any], verified: dict[str, Link]) -> Iterator[Link]:
    """Yield the links as far as they can be followed."""
    kind, family = _kind(workspace, row), _family_table(workspace, row)
    try:
        if kind == "cell":
            yield from cell_chain(workspace, row, family, verified)
            yield from _mitigation(workspace, row)
        elif kind == "answers":
            yield from answer_chain(workspace, row, family)
        elif kind == "texts":
            yield from text_chain(workspace, row, family)
        else:
            yield from table_links(workspace, row, family)
            note = "computed from rows of several cells; explain one of them to go on"
            yield Link(1, "other rows of the metric table", str(row["model"]), None, "not checked", note)
    except PlumblineError as error:
        where = f" ({error.where})" if error.where else ""
        yield Link(2, "the rest of the chain", "", None, "gone", f"{error.what}{where}")


def _kind(workspace: Workspace, row: Mapping[str, Any]) -> str:
    details = workspace.lake.require("metric_table").details
    if [row["dataset"], row["model"]] in [each[:2] for each in details["current"]]:
        return "cell"
    if row["model"] in [each[0] for each in details["models"]]:
        return "answers"
    return "texts" if row["dataset"] == _TEXTS else "several"


def _family_table(workspace: Workspace, row: Mapping[str, Any]) -> Committed | None:
    """Return the table of the metric family that holds the row; None of a row that was added over all of them."""
    parts = [(name, f"{row['dataset']}|{row['model']}") for name in CELL_TABLES]
    parts += [(name, row["model"]) for name in (*LANGUAGE_TABLES, "valence_geometry")]
    for name, partition in parts:
        committed = workspace.lake.committed(name, partition=partition)
        if committed is None:
            continue
        try:
            rows = current_table(workspace.lake.read_table(name, manifest=committed))
        except PlumblineError:
            # Its own link says so, where it can only be this one.
            if row["metric"] in name:
                return committed
            continue
        if same_measure(rows, row).height:
            return committed
    return None


def _mitigation(workspace: Workspace, row: Mapping[str, Any]) -> list[Link]:
    settings = workspace.audit.mitigations.get(row["condition"])
    partition = f"{row['dataset']}|{row['model']}"
    committed = None if settings is None else workspace.lake.committed(settings.method, partition=partition)
    return [] if committed is None else [stored_link(workspace, 2, f"mitigation {row['condition']}", committed)]


def _influence(workspace: Workspace, row: Mapping[str, Any]) -> Influence:
    kind = _kind(workspace, row)
    if kind == "cell":
        cell = StoredCell.find(workspace, row["dataset"], row["model"]).read()
        return encoder_influence(cell, row, settings=metric_settings(workspace))
    if kind == "answers":
        cell_of_model = StoredAnswers.find(workspace, row["model"]).cell()
        return language_influence(cell_of_model, row, settings=language_settings(workspace))
    if kind == "texts":
        return Influence("No image has a part in this number: it is computed from texts alone.")
    return Influence("Not available: this number is computed from other numbers of the whole audit.")


def _thumbnails(
    workspace: Workspace, row: Mapping[str, Any], influence: Influence, *, pictures: bool
) -> dict[str, Thumbnail]:
    wanted = list(dict.fromkeys(image for moved in influence.moved for image in moved.images))
    if not wanted:
        return {}
    records = workspace.lake.read_table("records", partition=row["dataset"])
    paths = dict(records.filter(pl.col("image_id").is_in(wanted)).select("image_id", "path").iter_rows())
    if not workspace.dataset_entry(row["dataset"]).open_reader().has_images:
        return {
            image: Thumbnail(image, path, None, "no image: a table names or counts it") for image, path in paths.items()
        }
    if not pictures:
        missing = "not shown, see `pictures` of the audit file; `plumbline explain --html FILE` shows it"
        return {image: Thumbnail(image, path, None, missing) for image, path in paths.items()}
    root = dataset_root(workspace, row["dataset"])
    return {image: thumbnail(root / path, image, path) for image, path in paths.items()}
