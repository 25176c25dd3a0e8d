"""The table of predictions of a cell whose encoder was run elsewhere."""

from collections.abc import Iterable

from plumbline.catalog.suites import Suite
from plumbline.checkpoints.addresses import parse_address
from plumbline.config.entries import Predictions
from plumbline.datasets.folder import TABLE_KINDS
from plumbline.encoders.stored_predictions import PredictionTable, require_same_table
from plumbline.errors import EncodingError
from plumbline.recording import unrecorded
from resources.checkout import PROJECT
from resources.workspace import Workspace


def prediction_table(workspace: Workspace, dataset: str, model: str) -> PredictionTable:
    """Return the table that holds what an encoder chose for the images of a dataset.

    Raises
    ------
    EncodingError
        If the encoder's folder has none for this dataset, or its counts are those of another table.
    """
    with unrecorded():  # its content counts, by the version of the checkpoint
        entry, of = workspace.dataset_entry(dataset), workspace.audit.encoders[model]
    path = parse_address(of.address, project=PROJECT).folder_in(workspace.fetched)
    settings = of.predictions or Predictions()
    image = entry.map.path if entry.map is not None and entry.map.path else settings.image
    if path.is_dir():
        names = [dataset + kind for kind in TABLE_KINDS]
        if entry.map is not None and entry.reader != "folder":
            names.insert(0, entry.map.index.rpartition("/")[2])
        tables = [path / name for name in names if (path / name).is_file()]
        if not tables:
            raise EncodingError(
                f"`{model}` has no predictions of the dataset `{dataset}`",
                where=path,
                found=", ".join(sorted(each.name for each in path.iterdir())) or "an empty folder",
                expected=" or ".join(names),
            )
        path = tables[0]
    counts = entry.map if entry.reader == "counts" else None
    if counts is not None:
        require_same_table(path, workspace.dataset_root(dataset) / counts.index)
    return PredictionTable(path, dataset, dict(settings.names), image, counts)


def left_out_of_predictions(asked: Iterable[str], answered: Iterable[Suite]) -> str | None:
    """Return why suites of a cell of stored predictions have no numbers; None where each has some."""
    lacking = [name for name in asked if name not in {suite.id for suite in answered}]
    return (
        f"not computed from stored predictions: {', '.join(lacking)}; they need vectors or logits, or a column of the "
        "table that is not there. Rates by top-1 are all that a choice among candidates allows"
        if lacking
        else None
    )
