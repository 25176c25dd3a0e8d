"""The explanation of one row of the metric table of an audit."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from assets.answer_lineage import answer_chain
from assets.answers import StoredAnswers
from assets.cells import CELL_TABLES, StoredCell
from assets.language import LANGUAGE_TABLES, language_settings
from assets.lineage import cell_chain, dataset_root, stored_link, table_links, text_chain
from assets.metrics import metric_settings
from plumbline.errors import PlumblineError
from plumbline.explain.chain import Link
from plumbline.explain.explanation import Explanation, Thumbnail, thumbnail
from plumbline.explain.group_influence import encoder_influence, language_influence
from plumbline.explain.influence import Influence
from plumbline.storage import Committed
from plumbline.tables.row_identity import IDENTIFYING
from resources.places import Places

_TEXTS = "text"


def explain(places: Places, row: Mapping[str, Any]) -> Explanation:
    """Explain a row of the metric table of an audit.

    Parameters
    ----------
    places : Places
        Of the audit, with its record as `past`.

    Notes
    -----
    Nothing that is missing upstream ends in an error: what cannot be followed is said where it stands in the chain.
    """
    chain = tuple(_chain(places, row))
    try:
        influence = _influence(places, row)
    except PlumblineError as error:
        influence = Influence(f"Not available: what it would be computed from cannot be read. {error.what}.")
    return Explanation(row, chain, influence, _thumbnails(places, row, influence))


def _chain(places: Places, row: Mapping[str, Any]) -> Iterable[Link]:
    kind, family = _kind(places, row), _family_table(places, row)
    found: list[Link] = []
    try:
        if kind == "cell":
            for link in cell_chain(places, row, family):
                found.append(link)
            found.extend(_mitigation(places, row))
        elif kind == "answers":
            for link in answer_chain(places, row, family):
                found.append(link)
        elif kind == "texts":
            for link in text_chain(places, row, family):
                found.append(link)
        else:
            found.extend(table_links(places, row, family))
            note = "computed from rows of several cells; explain one of them to go on"
            found.append(
                Link(1, "other rows of the metric table", str(row["model"]), None, "not checked", note)
            )
    except PlumblineError as error:
        where = f" ({error.where})" if error.where else ""
        found.append(Link(2, "the rest of the chain", "", None, "gone", f"{error.what}{where}"))
    return found


def _kind(places: Places, row: Mapping[str, Any]) -> str:
    details = places.lake.require("metric_table").details
    if [row["dataset"], row["model"]] in [each[:2] for each in details["current"]]:
        return "cell"
    if row["model"] in [each[0] for each in details["models"]]:
        return "answers"
    return "texts" if row["dataset"] == _TEXTS else "several"


def _family_table(places: Places, row: Mapping[str, Any]) -> Committed | None:
    """Return the table of the metric family that holds the row; None of a row that was added over all of them."""
    parts = [(name, f"{row['dataset']}|{row['model']}") for name in CELL_TABLES]
    parts += [(name, row["model"]) for name in (*LANGUAGE_TABLES, "valence_geometry")]
    for name, partition in parts:
        made = places.lake.committed(name, partition=partition)
        if made is None:
            continue
        try:
            rows = places.lake.read_table(name, made=made)
        except PlumblineError:
            # Its own link says so, where it can only be this one.
            if row["metric"] in name:
                return made
            continue
        same = [pl.col(c).eq_missing(pl.lit(row[c], dtype=rows.schema[c])) for c in IDENTIFYING]
        if rows.filter(*same).height:
            return made
    return None


def _mitigation(places: Places, row: Mapping[str, Any]) -> list[Link]:
    settings = places.audit.mitigations.get(row["condition"])
    partition = f"{row['dataset']}|{row['model']}"
    made = None if settings is None else places.lake.committed(settings.method, partition=partition)
    return [] if made is None else [stored_link(places, 2, f"mitigation {row['condition']}", made)]


def _influence(places: Places, row: Mapping[str, Any]) -> Influence:
    kind = _kind(places, row)
    if kind == "cell":
        cell = StoredCell.find(places, row["dataset"], row["model"]).read()
        return encoder_influence(cell, row, settings=metric_settings(places))
    if kind == "answers":
        cell_of_model = StoredAnswers.find(places, row["model"]).cell()
        return language_influence(cell_of_model, row, settings=language_settings(places))
    if kind == "texts":
        return Influence("No image has a part in this number: it is computed from texts alone.")
    return Influence("Not available: this number is computed from other numbers of the whole audit.")


def _thumbnails(places: Places, row: Mapping[str, Any], influence: Influence) -> dict[str, Thumbnail]:
    wanted = list(dict.fromkeys(image for moved in influence.moved for image in moved.images))
    if not wanted:
        return {}
    records = places.lake.read_table("records", partition=row["dataset"])
    paths = dict(records.filter(pl.col("image_id").is_in(wanted)).select("image_id", "path").iter_rows())
    root = dataset_root(places, row["dataset"])
    return {image: thumbnail(root / path, image, path) for image, path in paths.items()}
