"""Addresses of what `plumbline ui` serves beside Dagster's own pages: report, explanations, checks, pictures."""

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote, urlencode

DAGSTER = "http://127.0.0.1:3000"
"""Where `plumbline ui` serves Dagster unless it is told another port."""
FOLDER = "/plumbline"
REPORT, QUALITY, EXPLANATIONS, PICTURES, MLFLOW = (
    f"{FOLDER}/{name}" for name in ("report.html", "quality", "explanations", "pictures", "mlflow")
)


def report_of(model: str, dataset: str | None = None) -> str:
    """Return where the report shows the numbers of a model, on one dataset or on all."""
    chosen = {"model": model} | ({} if dataset is None else {"dataset": dataset})
    return f"{REPORT}#{urlencode(chosen, quote_via=quote)}"


def picture(asset: str, partition: str, name: str) -> str:
    """Return where a picture of an asset's partition is served."""
    return f"{PICTURES}/{'/'.join(quote(part, safe='') for part in (asset, partition, name))}.png"


def asset_page(asset: str, partition: str | None, *, server: str = DAGSTER) -> str:
    """Return Dagster's page of an asset, or of a partition of it."""
    page = f"{server}/assets/{quote(asset)}"
    return page if partition is None else f"{page}?{urlencode({'view': 'partitions', 'partition': partition})}"


def cell_pages(cell: Mapping[str, Any], generators: Collection[str]) -> dict[str, str]:
    """Return title -> path of Dagster's and MLflow's page of a cell, on the server that also serves the report.

    Parameters
    ----------
    cell : mapping
        A row of the table `provenance`.
    generators : collection of str
        The generative models: theirs are the partitions without a dataset.
    """
    model, run = cell["model"], cell["mlflow_run"]
    asset = ("tracked_answers", model) if model in generators else ("tracked_run", f"{cell['dataset']}|{model}")
    pages = {"Dagster": asset_page(*asset, server="")}
    return pages if run is None else pages | {"MLflow": f"{MLFLOW}/{quote(run, safe='')}"}
