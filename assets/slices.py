"""Slices of datasets: what one run of a generative model is about, and which of them an audit asks about."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import dagster as dg
import polars as pl

from assets.asked_cells import declaration_of
from assets.gates import require_passed
from assets.partitions import SLICES
from assets.recorded import asset
from assets.results import OWNERS, materialised
from plumbline.config.entries import GenerateEntry
from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.generators.design import chosen, pictured, require_images, require_names, slices
from plumbline.provenance.code_versions import code_version
from resources.workspace import Workspace


@dataclass(frozen=True)
class AskedSlice:
    """A slice about which a model is asked.

    Attributes
    ----------
    rows : DataFrame
        As `plumbline.generators.design.pictured` gives them.
    entries : tuple of GenerateEntry
        What the audit file asks.
    """

    id: str
    dataset: str
    rows: pl.DataFrame
    entries: tuple[GenerateEntry, ...]


def dataset_slices(workspace: Workspace, dataset: str) -> dict[str, pl.DataFrame]:
    """Return slice id -> who is pictured, of a dataset as its records are now.

    Raises
    ------
    StorageError
        If the records have not been made.
    ConfigError
        If the dataset does not say who is pictured.
    """
    committed = workspace.lake.require("records", partition=dataset)
    declared = repr(declaration_of(workspace, dataset))
    return _cut(workspace, dataset, committed.sha256, declared, workspace.audit.generation.slice_images)


# Every step about a slice asks; reading and cutting the same records again would take longer than small steps.
@lru_cache(maxsize=8)
def _cut(
    workspace: Workspace, dataset: str, records_sha256: str, declared: str, most_images: int
) -> dict[str, pl.DataFrame]:
    """Cut the records of a dataset; of what was read before, who asks has noted all that is among the arguments."""
    records = workspace.lake.read_table("records", partition=dataset)
    described = pictured(records, declaration_of(workspace, dataset))
    return slices(described, dataset, most_images=most_images)


def asked_slices(workspace: Workspace, model: str, *, without: Collection[str] = ()) -> dict[str, AskedSlice]:
    """Return slice id -> what a model is asked, over all its datasets; slices without questions are left out.

    Parameters
    ----------
    without : collection of str
        Datasets that are left out, as they are not there; names that an entry may mean of theirs are not checked.

    Raises
    ------
    ConfigError
        If an entry names a subset or an occupation that none of its datasets has, or chooses no image of one.
    """
    slices: dict[str, AskedSlice] = {}
    people: dict[GenerateEntry, list[pl.DataFrame]] = {}
    for dataset, entries in workspace.audit.designs_of(model).items():
        if dataset in without:
            continue
        cut = dataset_slices(workspace, dataset)
        for entry in entries:
            require_images(entry, dataset, cut)
            people.setdefault(entry, []).extend(cut.values())
        for slice_id, rows in cut.items():
            asking = tuple(entry for entry in entries if chosen(rows, entry).height)
            if asking:
                slices[slice_id] = AskedSlice(slice_id, dataset, rows, asking)
    for entry, frames in people.items():
        if not set(without).intersection(entry.datasets):
            require_names(entry, pl.concat(frames))
    return slices


def asked_slice(workspace: Workspace, model: str, slice_id: str) -> AskedSlice:
    """Return what a model is asked about one slice.

    Raises
    ------
    ConfigError
        If the audit file does not ask it about this slice.
    """
    slices = asked_slices(workspace, model)
    if slice_id not in slices:
        raise ConfigError(
            "the audit file does not ask this model about this slice",
            found=f"{model}|{slice_id}",
            expected=", ".join(slices) or "an entry of `generate` that names the model",
        )
    return slices[slice_id]


def asked_for(asked: AskedSlice) -> str:
    """Return the digest of what the audit file asks about a slice."""
    return digest_json([entry.model_dump(mode="json", exclude={"lvlms", "datasets"}) for entry in asked.entries])


def dataset_of(workspace: Workspace, slice_id: str) -> str:
    """Return the dataset that a slice is a part of.

    Raises
    ------
    ConfigError
        If it is of no dataset that the audit file asks about.
    """
    datasets = workspace.audit.asked_datasets
    for dataset in datasets:
        if slice_id in dataset_slices(workspace, dataset):
            return dataset
    raise ConfigError(
        "there is no such slice of the datasets that models are asked about",
        found=slice_id,
        expected=f"a slice of {', '.join(datasets)}" if datasets else "an audit file with `generate`",
    )


@asset(
    # Which slice is of which dataset is known here, not to Dagster: whatever changes, only content counts below.
    deps=[dg.AssetDep("records", partition_mapping=dg.AllPartitionMapping())],
    partitions_def=SLICES,
    group_name="slices",
    owners=OWNERS,
    kinds={"polars"},
    code_version=code_version(pictured, slices, shells=[__name__]),
)
def pictured_people(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """Who is pictured in one slice of a dataset: a counterfactual subset, or a numbered part of a large one.

    One row per image, with the labels of its group (such as `Black_woman`), its counterfactual set, and the text that
    describes it to a language model without vision.
    """
    dataset = dataset_of(workspace, context.partition_key)
    require_passed(workspace, dataset, of=("records",))
    frame = dataset_slices(workspace, dataset)[context.partition_key]
    committed = workspace.lake.write_table(
        "pictured_people",
        frame,
        partition=context.partition_key,
        details={
            "dataset": dataset,
            "dataset_digest": workspace.lake.require("records", partition=dataset).details["dataset_digest"],
        },
    )
    groups = frame.group_by("attribute", "group").len().sort("attribute", "group")
    return materialised(
        committed, lake=workspace.lake, frame=frame, sets=frame["set_id"].n_unique(), groups=groups.height
    )
