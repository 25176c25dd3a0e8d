"""One encoder on one dataset: which suites are asked of it, what was computed for it, and its identity."""

import polars as pl

from plumbline import __version__
from plumbline.datasets import reader_for, row_filter
from plumbline.digests import digest_json
from plumbline.errors import StorageError
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.registry import FAMILIES
from plumbline.tables.schema import LINEAGE_COLUMNS, polars_schema
from plumbline.tables.suites import Suite, load_suite
from resources.places import Places


def cell_suites(places: Places, dataset: str, model: str) -> tuple[Suite, ...]:
    """Return the suites that the audit file asks of a cell, the Trident ones over the dataset's own label set."""
    classes = reader_for(places.dataset_entry(dataset).reader).declaration.class_set
    names = places.audit.cells.get((dataset, model), ())
    return tuple(load_suite(name, classes=classes if name.startswith("trident") else None) for name in names)


def read_cell(places: Places, dataset: str, model: str) -> Cell:
    """Read records, labels and logits of a cell from the lake.

    Raises
    ------
    StorageError
        If the logits were computed on other records than those of now.
    """
    lake, partition = places.lake, f"{dataset}|{model}"
    made = lake.require("probe_logits", partition=partition)
    records = lake.read_table("extended_records", partition=dataset)
    now = lake.require("records", partition=dataset).sha256
    labelled = lake.require("extended_records", partition=dataset).details["records_sha256"]
    if not made.details["records_sha256"] == labelled == now:
        raise StorageError(
            "logits, labels and records of this cell do not belong together",
            where=partition,
            found=f"logits of {made.details['records_sha256'][:12]}, labels of {labelled[:12]}",
            expected=f"records {now[:12]}",
            hint="run `plumbline audit`, or materialise the stale assets of this cell",
        )
    arrays = lake.read_arrays("probe_logits", partition=partition)
    column = {text: i for i, text in enumerate(made.details["texts"])}
    declaration = reader_for(places.dataset_entry(dataset).reader).declaration
    filters = {**declaration.filters, **places.dataset_entry(dataset).filters}
    logits, keep = {}, {}
    for suite in cell_suites(places, dataset, model):
        chosen = [column[text] for text in suite.texts]
        logits[suite.id] = SuiteLogits(
            suite=suite,
            dot=arrays["dot"][:, chosen],
            image_norm=arrays["image_norm"],
            text_norm=arrays["text_norm"][chosen],
            logit_scale=made.details["logit_scale"],
        )
        keep[suite.id] = row_filter(filters.get(suite.id, declaration.default_filter))(records)
    return Cell(model=model, dataset=dataset, records=records, logits=logits, keep=keep)


def cell_id(places: Places, dataset: str, model: str) -> str:
    """Return the identity of a cell: digest of data, labels, checkpoint, prompts, settings and code version."""
    lake = places.lake
    logits = lake.require("probe_logits", partition=f"{dataset}|{model}").details
    audit, entry = places.audit, places.dataset_entry(dataset)
    return digest_json(
        {
            "dataset": [dataset, lake.require("records", partition=dataset).details["dataset_digest"]],
            "filters": entry.filters,
            "model": [model, logits["checkpoint"]],
            "labeller": lake.require("extended_records", partition=dataset).details["labeller_digest"],
            "suites": [suite.hash for suite in cell_suites(places, dataset, model)],
            "settings": [audit.statistics.model_dump(mode="json"), audit.adjustment.model_dump(mode="json")],
            "code": [__version__, {name: family.code_version for name, family in FAMILIES.items()}],
        }
    )


def with_lineage(frame: pl.DataFrame, places: Places, dataset: str, model: str) -> pl.DataFrame:
    """Fill the lineage columns of metric rows of a cell; `audit_id` follows in `metric_table`."""
    lake = places.lake
    labels = lake.require("extended_records", partition=dataset).details
    logits = lake.require("probe_logits", partition=f"{dataset}|{model}").details
    hashes = {suite.id: suite.hash for suite in cell_suites(places, dataset, model)}
    hashes["trident_mixed"] = hashes.get("trident", "")
    mixed = pl.col("suite").is_in(["trident_mixed", "trident_composite"])
    known = {
        "cell_id": pl.lit(cell_id(places, dataset, model)),
        "dataset_digest": pl.lit(lake.require("records", partition=dataset).details["dataset_digest"]),
        "checkpoint_sha256": pl.lit(logits["weights_sha256"]),
        "suite_hash": pl.coalesce("suite_hash", pl.col("suite").replace_strict(hashes, default=None)),
        "labeller_sha256": pl.when(mixed).then(pl.lit(labels["labeller_sha256"])),
    }
    filled = {name: known.get(name, pl.lit(None, dtype=pl.String)).alias(name) for name in LINEAGE_COLUMNS}
    return frame.with_columns(**filled).select(list(polars_schema())).cast(polars_schema())
