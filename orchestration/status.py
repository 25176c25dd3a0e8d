"""What `plumbline status` shows."""

import dagster as dg
from rich.console import Console
from rich.table import Table

from assets.currency import sort_cells
from assets.gates import failed_checks
from plumbline.errors import PlumblineError
from resources.places import Places


def print_status(places: Places, instance: dg.DagsterInstance, *, console: Console) -> None:
    """Print encoders, datasets and cells with what is missing and why."""
    audit = places.audit
    encoders = Table("encoder", "on disk", "sha256 of the weights", title="Encoders", title_justify="left")
    for encoder in audit.encoders:
        try:
            encoders.add_row(encoder, "yes", places.checkpoint(encoder).weights_sha256[:16] + "…")
        except PlumblineError as error:
            encoders.add_row(encoder, "no", error.hint or error.what)
    datasets = Table("dataset", "listed", "accepted", "checks", title="Datasets", title_justify="left")
    for dataset in audit.datasets:
        made = places.lake.committed("records", partition=dataset)
        failed = failed_checks(instance, places, dataset, of=("records", "extended_records"))
        listed = (str(made.details["listed"]), str(made.rows)) if made else ("not read", "")
        datasets.add_row(dataset, *listed, "passed" if not failed else "; ".join(failed))
    cells = sort_cells(places, instance)
    console.print(encoders, datasets)
    console.print(f"{len(cells.current)} of {len(audit.cells)} cells are current", highlight=False)
    for cell in cells.absent:
        console.print(f"  {cell.dataset}|{cell.model}: {cell.reason}", markup=False, highlight=False)
    exists = places.report.is_file()
    console.print(f"Report: {places.report if exists else 'none yet; run `plumbline audit`'}", soft_wrap=True)
