"""What the graph starts from, observed by content: dataset folders, checkpoints and prompt suites."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import dagster as dg

from assets.partitions import DATASETS, ENCODERS, LVLMS
from plumbline.catalog.prompts import prompts_hash
from plumbline.catalog.suites import all_suites
from plumbline.catalog.word_lists import answer_words_digest
from plumbline.checkpoints.folders import CheckpointFiles, require_complete
from plumbline.concurrency import run_threads
from plumbline.datasets.ingestion import folder_digest
from plumbline.digests import digest_json
from plumbline.encoders.encoder import Encoder
from plumbline.errors import PlumblineError
from plumbline.mitigations.settings import words_digest
from resources.asking_endpoints import ask_endpoints
from resources.workspace import Workspace

_SPEC = {"group_name": "sources"}


@dg.observable_source_asset(
    partitions_def=DATASETS,
    kinds={"image"},
    description="A dataset folder: its index and image files. Its version is a digest of their content.",
    **_SPEC,
)
def dataset_folder(workspace: dg.ResourceParam[Workspace]) -> dg.DataVersionsByPartition:
    """Digest every dataset folder."""
    return dg.DataVersionsByPartition(dataset_versions(workspace))


@dg.observable_source_asset(
    partitions_def=ENCODERS,
    kinds={"pytorch"},
    description="A model checkpoint as it lies on disk. Its version is the content of weights, config and tokenizer, "
    "and the family that reads them.",
    **_SPEC,
)
def encoder_checkpoint(workspace: dg.ResourceParam[Workspace]) -> dg.DataVersionsByPartition:
    """Digest every checkpoint."""
    return dg.DataVersionsByPartition(checkpoint_versions(workspace))


@dg.observable_source_asset(
    kinds={"yaml"},
    description="The prompts of every suite, as rendered. A changed word changes this version, and no image embedding.",
    **_SPEC,
)
def prompt_suites(workspace: dg.ResourceParam[Workspace]) -> dg.DataVersion:
    """Digest the rendered prompts of all suites."""
    return dg.DataVersion(prompts_version(workspace))


@dg.observable_source_asset(
    partitions_def=LVLMS,
    kinds={"pytorch"},
    description="A generative model: its checkpoint as it lies on disk, weights, processor, template and tokenizer; "
    "or what an endpoint is asked for and says that it is.",
    **_SPEC,
)
def lvlm_checkpoint(workspace: dg.ResourceParam[Workspace]) -> dg.DataVersionsByPartition:
    """Digest every generative model."""
    return dg.DataVersionsByPartition(lvlm_versions(workspace))


@dg.observable_source_asset(
    kinds={"yaml"},
    description="What generative models are asked: prompts, instructions and how they are joined. A changed word asks "
    "the question anew, and nothing else.",
    **_SPEC,
)
def generation_prompts() -> dg.DataVersion:
    """Digest the prompts and instructions."""
    return dg.DataVersion(prompts_hash())


@dg.observable_source_asset(
    kinds={"yaml"},
    description="The texts and word lists that mitigations work with: attributes, neutral captions, queries. A changed "
    "word fits the mitigations of texts anew, from stored embeddings.",
    **_SPEC,
)
def mitigation_texts() -> dg.DataVersion:
    """Digest the data files of mitigations."""
    return dg.DataVersion(words_digest())


@dg.observable_source_asset(
    kinds={"yaml"},
    description="The word lists that answers are read with: people, competence, refusals, stop words, offensive words. "
    "A changed word counts anew what was answered; nothing is asked again.",
    **_SPEC,
)
def answer_words() -> dg.DataVersion:
    """Digest the word lists."""
    return dg.DataVersion(answer_words_digest())


SOURCES = [
    dataset_folder, encoder_checkpoint, lvlm_checkpoint,
    prompt_suites, mitigation_texts, generation_prompts, answer_words,
]  # fmt: skip
"""Everything that the graph starts from."""


def dataset_versions(workspace: Workspace, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return dataset -> content digest; one that cannot be read is warned of and left out.

    Parameters
    ----------
    names : iterable of str, optional
        Only these; by default all of the audit file.
    """
    return _versions(
        _of(workspace.audit.datasets, names),
        lambda name: folder_digest(workspace.dataset_entry(name).open_reader(), workspace.dataset_root(name)),
    )


def checkpoint_versions(workspace: Workspace, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return encoder -> content digest; one that is not whole on disk is warned of and left out."""

    def version(name: str) -> str:
        files = workspace.checkpoint(name)
        _require_copied(files)
        return files.version

    return _versions(_of(workspace.audit.encoders, names), version)


def lvlm_versions(workspace: Workspace, names: Iterable[str] | None = None) -> dict[str, str]:
    """Return generative model -> version; one that is not whole on disk is warned of and left out."""

    def version(name: str) -> str:
        if workspace.lvlm_entry(name).address is not None:
            _require_copied(workspace.lvlm_files(name))
        return workspace.lvlm_version(name)

    return _versions(_of(workspace.audit.lvlms, names), version)


def _require_copied(files: CheckpointFiles) -> None:
    """Refuse weights that are still being copied: what is computed from a checkpoint would fail until they are not."""
    for path in files.weights:
        if path.suffix == ".safetensors":
            require_complete(path)


def _of(known: Iterable[str], names: Iterable[str] | None) -> list[str]:
    wanted = None if names is None else set(names)
    return [name for name in known if wanted is None or name in wanted]


def encoder_version(encoder: Encoder) -> str:
    """Return the version of the checkpoint that an encoder was loaded from; see `CheckpointFiles.version`."""
    return digest_json([encoder.family, encoder.identity.weights])


def prompts_version(workspace: Workspace) -> str:
    """Return the digest of every suite's rendered prompts, those of the audit file's own included."""
    return digest_json([suite.hash for suite in all_suites(workspace.own_suites)])


def _versions(names: Iterable[str], digest: Callable[[str], str]) -> dict[str, str]:
    """Digest several sources, as many at once as there are cores; planted ones are drawn then too."""
    listed = list(names)
    versions = run_threads([partial(_version, name, digest) for name in listed])
    return {name: version for name, version in zip(listed, versions) if version is not None}


def _version(name: str, digest: Callable[[str], str]) -> str | None:
    try:
        return digest(name)
    except PlumblineError as error:
        dg.get_dagster_logger().warning("%s was not observed: %s", name, error)
        return None


_OF_NAMES: dict[str, Callable[[Workspace, Iterable[str] | None], dict[str, str]]] = {
    "dataset_folder": dataset_versions,
    "encoder_checkpoint": checkpoint_versions,
    "lvlm_checkpoint": lvlm_versions,
}
_OF_TEXTS: dict[str, Callable[[Workspace], str]] = {
    "prompt_suites": prompts_version,
    "mitigation_texts": lambda workspace: words_digest(),
    "generation_prompts": lambda workspace: prompts_hash(),
    "answer_words": lambda workspace: answer_words_digest(),
}


def source_names(workspace: Workspace) -> Iterator[tuple[str, str | None]]:
    """Yield every (source, partition) of the audit file; texts and word lists have no partition."""
    audit = workspace.audit
    named: tuple[Iterable[str], ...] = (audit.datasets, audit.encoders, audit.lvlms)
    for asset, names in zip(_OF_NAMES, named):
        for name in names:
            yield asset, name
    for asset in _OF_TEXTS:
        yield asset, None


def report_sources(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    only: Collection[tuple[str, str | None]] | None = None,
    *,
    ask: bool = True,
    folders: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Report the version of every source whose content has changed since it was last reported.

    Parameters
    ----------
    only : collection of (str, str or None), optional
        Look at these alone, as `source_names` gives them.
    ask : bool
        Whether endpoints are asked what they are, which costs a token each; not where they just were.
    folders : mapping of str to str
        Dataset -> digest of its folder, where it was just taken: images are not read twice.

    Returns
    -------
    list of str
        What was reported, as `source` or `source partition`.
    """
    wanted = list(source_names(workspace)) if only is None else list(only)
    if ask and any(asset == "lvlm_checkpoint" for asset, _ in wanted):
        ask_endpoints(workspace, [name for asset, name in wanted if asset == "lvlm_checkpoint" and name])
    changed = []
    for asset in dict.fromkeys(asset for asset, _ in wanted):
        names = [name for source, name in wanted if source == asset and name is not None]
        digests: dict[str | None, str]
        if asset in _OF_NAMES:
            digests = {name: folders[name] for name in names if asset == "dataset_folder" and name in folders}
            digests |= _OF_NAMES[asset](workspace, [name for name in names if name not in digests])
        else:
            digests = {None: _OF_TEXTS[asset](workspace)}
        for partition, version in digests.items():
            if _reported(instance, asset, partition) != version:
                instance.report_runless_asset_event(
                    dg.AssetObservation(asset, partition=partition, tags={"dagster/data_version": version})
                )
                changed.append(" ".join(filter(None, (asset, partition))))
    return changed


def _reported(instance: dg.DagsterInstance, asset: str, partition: str | None) -> str | None:
    partitions = None if partition is None else [partition]
    filters = dg.AssetRecordsFilter(asset_key=dg.AssetKey(asset), asset_partitions=partitions)
    for record in instance.fetch_observations(filters, limit=1).records:
        if record.asset_observation:
            return (record.asset_observation.tags or {}).get("dagster/data_version")
    return None
