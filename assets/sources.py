"""What the graph starts from, observed by content: dataset folders, checkpoints and prompt suites."""

from collections.abc import Callable, Iterable

import dagster as dg

from assets.partitions import DATASETS, ENCODERS, LVLMS
from plumbline.datasets import folder_digest
from plumbline.digests import digest_json
from plumbline.encoders.addresses import CheckpointFiles
from plumbline.encoders.encoder import Encoder
from plumbline.errors import PlumblineError
from plumbline.tables.generation_prompts import prompts_hash
from plumbline.tables.suites import all_suites
from resources.places import Places

_SPEC = {"group_name": "sources"}


@dg.observable_source_asset(
    partitions_def=DATASETS,
    kinds={"image"},
    description="A dataset as it lies on disk: its index and image files. Its version is the content of all of them.",
    **_SPEC,
)
def dataset_folder(places: dg.ResourceParam[Places]) -> dg.DataVersionsByPartition:
    """Digest every dataset folder."""
    return dg.DataVersionsByPartition(dataset_versions(places))


@dg.observable_source_asset(
    partitions_def=ENCODERS,
    kinds={"pytorch"},
    description="A model checkpoint as it lies on disk. Its version is the content of weights, config and tokenizer, "
    "and the family that reads them.",
    **_SPEC,
)
def encoder_checkpoint(places: dg.ResourceParam[Places]) -> dg.DataVersionsByPartition:
    """Digest every checkpoint."""
    return dg.DataVersionsByPartition(checkpoint_versions(places))


@dg.observable_source_asset(
    kinds={"yaml"},
    description="The prompts of every suite, as rendered. A changed word changes this version, and no image embedding.",
    **_SPEC,
)
def prompt_suites() -> dg.DataVersion:
    """Digest the rendered prompts of all suites."""
    return dg.DataVersion(prompts_version())


@dg.observable_source_asset(
    partitions_def=LVLMS,
    kinds={"pytorch"},
    description="A generative model: its checkpoint as it lies on disk, weights, processor, template and tokenizer; "
    "or what an endpoint is asked for.",
    **_SPEC,
)
def lvlm_checkpoint(places: dg.ResourceParam[Places]) -> dg.DataVersionsByPartition:
    """Digest every generative model."""
    return dg.DataVersionsByPartition(lvlm_versions(places))


@dg.observable_source_asset(
    kinds={"yaml"},
    description="What generative models are asked: prompts, instructions and how they are joined. A changed word asks "
    "the question anew, and nothing else.",
    **_SPEC,
)
def generation_prompts() -> dg.DataVersion:
    """Digest the prompts and instructions."""
    return dg.DataVersion(prompts_hash())


def dataset_versions(places: Places) -> dict[str, str]:
    """Return dataset -> content digest; one that cannot be read is warned of and left out."""
    return _versions(
        places.audit.datasets,
        lambda name: folder_digest(places.dataset_entry(name).open_reader(), places.dataset_root(name)),
    )


def checkpoint_versions(places: Places) -> dict[str, str]:
    """Return encoder -> content digest; one that is not on disk is warned of and left out."""
    return _versions(places.audit.encoders, lambda name: files_version(places.checkpoint(name)))


def lvlm_versions(places: Places) -> dict[str, str]:
    """Return generative model -> version; one that is not on disk is warned of and left out."""
    return _versions(places.audit.lvlms, places.lvlm_version)


def files_version(files: CheckpointFiles) -> str:
    """Return the version of a checkpoint: its content, and the family that reads it."""
    return digest_json([files.family, files.digest])


def encoder_version(encoder: Encoder) -> str:
    """Return the version of the checkpoint that an encoder was loaded from; see `files_version`."""
    return digest_json([encoder.family, encoder.identity.weights])


def prompts_version() -> str:
    """Return the digest of every suite's rendered prompts."""
    return digest_json([suite.hash for suite in all_suites()])


def _versions(names: Iterable[str], digest: Callable[[str], str]) -> dict[str, str]:
    versions = {}
    for name in names:
        try:
            versions[name] = digest(name)
        except PlumblineError as error:
            dg.get_dagster_logger().warning("%s was not observed: %s", name, error)
    return versions


def report_sources(instance: dg.DagsterInstance, places: Places) -> None:
    """Report the version of every source whose content has changed since it was last reported."""
    observed: dict[str, dict[str | None, str]] = {
        "dataset_folder": dict(dataset_versions(places)),
        "encoder_checkpoint": dict(checkpoint_versions(places)),
        "lvlm_checkpoint": dict(lvlm_versions(places)),
        "prompt_suites": {None: prompts_version()},
        "generation_prompts": {None: prompts_hash()},
    }
    for asset, versions in observed.items():
        for partition, version in versions.items():
            if _reported(instance, asset, partition) != version:
                instance.report_runless_asset_event(
                    dg.AssetObservation(asset, partition=partition, tags={"dagster/data_version": version})
                )


def _reported(instance: dg.DagsterInstance, asset: str, partition: str | None) -> str | None:
    partitions = None if partition is None else [partition]
    filters = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=partitions)
    for record in instance.fetch_observations(filters, limit=1).records:
        if record.asset_observation:
            return (record.asset_observation.tags or {}).get("dagster/data_version")
    return None
