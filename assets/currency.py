"""Which cells of an audit have numbers that hold today, and why the others have none."""

from dataclasses import dataclass

import dagster as dg

from assets.cells import CELL_TABLES, StoredCell
from assets.gates import failed_checks
from assets.sources import checkpoint_versions, dataset_versions
from plumbline.errors import PlumblineError
from plumbline.report import AbsentCell
from resources.places import Places


@dataclass(frozen=True)
class Currency:
    """The audited cells, sorted.

    Attributes
    ----------
    current : list of (dataset, encoder, cell id)
        Passed their checks, and computed from the data, checkpoints, prompts and settings of now.
    absent : list of AbsentCell
        The others, each with its reason.
    """

    current: list[tuple[str, str, str]]
    absent: list[AbsentCell]


def sort_cells(places: Places, instance: dg.DagsterInstance) -> Currency:
    """Compare what is stored of every audited cell with its sources as they are on disk now."""
    datasets, checkpoints = dataset_versions(places), checkpoint_versions(places)
    current, absent = [], []
    for dataset, model in places.audit.cells:
        try:
            refused = failed_checks(instance, places, dataset, of=("records", "extended_records"))
            if refused:
                raise PlumblineError(f"refused, since checks have not passed: {', '.join(refused)}")
            stored = StoredCell.find(places, dataset, model)
            _require_todays(stored, datasets, checkpoints)
            current.append((dataset, model, stored.identity))
        except PlumblineError as error:
            absent.append(AbsentCell(model=model, dataset=dataset, reason=error.what))
    return Currency(current, absent)


def _require_todays(stored: StoredCell, datasets: dict[str, str], checkpoints: dict[str, str]) -> None:
    places, records, labels = stored.places, stored.records.details, stored.extended.details
    entry, labeller = places.dataset_entry(stored.dataset), places.audit.labeller
    pairs = {
        "dataset folder": (records["folder_digest"], datasets.get(stored.dataset)),
        "reader": (records["reader"], entry.reader),
        "padding": (records["padding"], entry.padding),
        "column map": (records.get("map"), entry.map.model_dump(mode="json") if entry.map else None),
        "checkpoint": (stored.logits.details["checkpoint"], checkpoints.get(stored.model)),
        "labeller": (labels["labeller_digest"], checkpoints.get(labeller)),
        "engine": (stored.logits.details["engine"], places.declared_engine),
        "engine of the labeller": (labels.get("engine"), places.declared_engine),
    }
    for name in CELL_TABLES:
        made = places.lake.require(name, partition=stored.partition)
        pairs[name] = (made.details["cell_id"], stored.identity)
    changed = [name for name, (then, now) in pairs.items() if then != now]
    if changed:
        raise PlumblineError(
            f"out of date: {', '.join(changed)} changed since it was computed; run the audit again"
        )
