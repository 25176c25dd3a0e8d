"""From a folder of images to records: what was accepted, what was not and why, and the automatic gender labels."""

from functools import partial

import dagster as dg

from assets.asked_cells import declaration_of
from assets.gates import require_passed
from assets.images import embed_listed, listed_images
from assets.partitions import DATASETS
from assets.progress import progress_of
from assets.recorded import asset, recorded
from assets.results import OWNERS, markdown_table, materialised, same_columns
from assets.sources import dataset_versions, encoder_version
from plumbline.catalog.suites import load_suite
from plumbline.datasets.extended import extend_records, label_error_table, label_probabilities
from plumbline.datasets.grouping import rows_without_group
from plumbline.datasets.ingestion import dataset_digest, ingest
from plumbline.datasets.registry import reader_for
from plumbline.encoders.embedding import TEXT_BATCH_ROWS, embed_texts
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import require_suites
from plumbline.errors import PlumblineError
from plumbline.own_code import is_reference
from plumbline.provenance.code_versions import code_version
from plumbline.recording import note, unrecorded
from resources.encoders import EncoderPool
from resources.workspace import Workspace

_READING = code_version(ingest, reader_for, dataset_digest, shells=[__name__])
_SPEC = {"partitions_def": DATASETS, "group_name": "datasets", "owners": OWNERS, "kinds": {"polars", "parquet"}}


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            "records",
            deps=["dataset_folder"],
            description="One row per accepted image: content hash, path, split and the dataset's labels.",
            code_version=_READING,
            **_SPEC,
        ),
        dg.AssetSpec(
            "quarantine",
            deps=["dataset_folder"],
            description="Every rejected input: file, line, reason, what was found and what was expected. "
            "Accepted + quarantined = listed, always.",
            code_version=_READING,
            **_SPEC,
        ),
    ]
)
@partial(recorded, records=_READING, quarantine=_READING)
def records_and_quarantine(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> tuple[dg.MaterializeResult, dg.MaterializeResult]:
    """Read a dataset's index, decode every file in full, and split the inputs into accepted and quarantined."""
    dataset, lake = context.partition_key, workspace.lake
    note("dataset_folder", dataset, value=dataset_versions(workspace, [dataset]).get(dataset))
    entry, root = workspace.dataset_entry(dataset), workspace.dataset_root(dataset)
    reader = entry.open_reader()
    if is_reference(entry.reader):
        workspace.own_code(entry.reader)
    with progress_of(f"{dataset}: reading files") as progress:
        ingested = ingest(reader, root, dataset=dataset, progress=progress)
    details = {
        "dataset_digest": dataset_digest(ingested.records, ingested.quarantine),
        "folder_digest": ingested.folder_digest,
        "read_as": entry.read_as,
        "reader": entry.reader,
        "map": entry.map.model_dump(mode="json") if entry.map else None,
        "padding": entry.padding,
        "listed": ingested.listed,
        "ungrouped": ingested.ungrouped.to_dicts(),
        "classes": ingested.records["label"].drop_nulls().unique().sort().to_list(),
    }
    records, quarantine = (
        materialised(
            lake.write_table(name, frame, partition=dataset, details=details),
            lake=lake,
            frame=frame,
            asset=name,
            listed=ingested.listed,
            accepted=ingested.records.height,
            quarantined=ingested.quarantine.height,
            reasons=dg.MetadataValue.md(markdown_table(ingested.quarantine["code"].value_counts(sort=True))),
            rows_without_a_group=dg.MetadataValue.md(markdown_table(rows_without_group(ingested.ungrouped))),
        )
        for name, frame in (("records", ingested.records), ("quarantine", ingested.quarantine))
    )
    return records, quarantine


def extended_records_asset(labeller: str | None) -> dg.AssetsDefinition:
    """Build `extended_records`, whose labels come from the audit file's labelling checkpoint, if it has one."""
    checkpoint = (
        []
        if labeller is None
        else [dg.AssetDep("encoder_checkpoint", partition_mapping=dg.SpecificPartitionsPartitionMapping([labeller]))]
    )

    @asset(
        name="extended_records",
        deps=[dg.AssetDep("records"), dg.AssetDep("prompt_suites"), *checkpoint],
        pool="gpu",
        code_version=code_version(
            extend_records, label_error_table, shells=[__name__, "assets.images", "assets.sources"]
        ),
        **{**_SPEC, "kinds": {"polars", "pytorch"}},
    )
    def extended_records(
        context: dg.AssetExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        encoders: dg.ResourceParam[EncoderPool],
    ) -> dg.MaterializeResult:
        """Records with an automatic gender label, man or woman, with the labeller's probability and margin.

        `composite` joins class and label, as in the extended datasets of the Trident study: `Indian_woman`.

        Where images are not on this disk or not of people, or nothing labels them, these columns are null; so are those
        of image-text pairs that mitigations are trained on or judged by.

        These are predictions: their error rate against the dataset's gender labels is reported by group and checked.
        """
        require_passed(workspace, context.partition_key, of=("records",))
        dataset, named = context.partition_key, workspace.audit.labeller or labeller
        with unrecorded():  # the reader is part of the records
            reader = workspace.dataset_entry(dataset).open_reader()
        # Nobody is labelled in pairs that are trained on: nothing asks who is pictured there.
        of_people = reader.has_images and reader.declaration.of_people
        if named is None or not of_people or dataset not in workspace.audit.audited_datasets:
            return _unlabelled(workspace, dataset)
        try:
            encoder = encoders.get(named)
        except PlumblineError as error:
            why = f"`{named}` labels genders for this audit (`labeller`, by default the first encoder), and cannot: "
            raise error.restated(type(error), why, where=error.where, hint="name another `labeller`") from error
        return _labelled(workspace, dataset, encoder, labeller=named)

    return extended_records


def _unlabelled(workspace: Workspace, dataset: str) -> dg.MaterializeResult:
    """Commit the records without automatic labels."""
    lake = workspace.lake
    recorded = lake.require("records", partition=dataset)
    extended = extend_records(lake.read_table("records", manifest=recorded), None)
    details = dict.fromkeys(("labeller", "labeller_sha256", "labeller_digest", "suite_hash"))
    details |= {"engine": workspace.declared_engine, "records_sha256": recorded.sha256, "forward_passes": 0}
    committed = lake.write_table("extended_records", extended, partition=dataset, details=details)
    lake.write_table("label_error", label_error_table(extended), partition=dataset)
    return materialised(committed, lake=lake, frame=extended.drop("path", "image_id"), labeller="none")


def _labelled(workspace: Workspace, dataset: str, encoder: DualEncoder, *, labeller: str) -> dg.MaterializeResult:
    """Label the accepted images of a dataset, and commit the labels with their error."""
    lake = workspace.lake
    recorded, suite = lake.require("records", partition=dataset), load_suite("gender_labels")
    records = lake.read_table("records", manifest=recorded)
    require_suites(encoder.family, [suite])
    images = embed_listed(workspace, encoder, dataset, listed_images(workspace, dataset))
    texts = embed_texts(encoder, suite.texts, workspace.shards, batch_rows=TEXT_BATCH_ROWS)
    work = images.counters() | {"forward_passes": images.work.forward_passes + texts.work.forward_passes}
    declared = declaration_of(workspace, dataset)
    extended = extend_records(
        records,
        label_probabilities(images.array, texts.array, logit_scale=encoder.logit_scale),
        classes=declared.base_attribute if declared.class_set else None,
    )
    error = label_error_table(extended)
    details = {
        "labeller": labeller,
        "labeller_sha256": encoder.weights_sha256,
        "labeller_digest": encoder_version(encoder),
        "engine": workspace.declared_engine,
        "suite_hash": suite.hash,
        "records_sha256": recorded.sha256,
        **work,
    }
    committed = lake.write_table("extended_records", extended, partition=dataset, details=details)
    lake.write_table("label_error", error, partition=dataset)
    return materialised(
        committed,
        lake=lake,
        frame=extended.drop("path", "image_id"),
        labeller=labeller,
        label_error=dg.MetadataValue.md(markdown_table(error)),
        **{"dagster/column_lineage": same_columns(records, "records")},
        **work,
    )
