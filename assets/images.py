"""The accepted images of a dataset as files with their hashes: what every encoder reads, and how they are embedded."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.progress import progress_of
from plumbline.encoders.embedding import Embedded, embed_images, keep_vectors, read_embedded
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.stored_embeddings import StoredEmbeddings
from plumbline.errors import StorageError
from plumbline.storage import Committed
from plumbline.storage.builds import Build
from resources.workspace import Workspace


@dataclass(frozen=True)
class ListedImages:
    """The rows of `records` as files.

    Attributes
    ----------
    paths : list of Path
    image_ids : list of str
        sha256 of each file's bytes, in the same order.
    records_sha256 : str
        Of the committed records.
    listed : DataFrame
        `path`, below the dataset, and `image_id` of the same images.
    """

    paths: list[Path]
    image_ids: list[str]
    records_sha256: str
    listed: pl.DataFrame


def listed_images(workspace: Workspace, dataset: str) -> ListedImages:
    """Read the accepted images of a dataset from the lake."""
    committed = workspace.lake.require("records", partition=dataset)
    return as_files(workspace, dataset, workspace.lake.read_table("records", manifest=committed), committed.sha256)


def as_files(workspace: Workspace, dataset: str, records: pl.DataFrame, records_sha256: str) -> ListedImages:
    """Return rows of the records of a dataset as files."""
    root, listed = workspace.dataset_root(dataset), records.select("path", "image_id")
    return ListedImages([root / path for path in listed["path"]], listed["image_id"].to_list(), records_sha256, listed)


def embed_listed(workspace: Workspace, encoder: DualEncoder, dataset: str, listed: ListedImages) -> Embedded:
    """Embed images through the shared cache, with progress; stored embeddings of them are looked up."""
    settings = workspace.engine_settings()
    if isinstance(encoder, StoredEmbeddings):
        vectors = encoder.images(dataset, listed.listed)
        kept = keep_vectors(
            encoder, vectors.vectors, listed.image_ids, workspace.shards, shard_rows=settings["shard_rows"]
        )
        return replace(kept, notes=vectors.notes, surplus=vectors.surplus)
    if encoder.crop is None:
        # No other decoder can stand in for a preprocessing that is more than a resize and a crop.
        settings["decoder"] = "pillow"
    with progress_of(f"{dataset}: embedding") as progress:
        return embed_images(encoder, listed.paths, listed.image_ids, workspace.shards, progress=progress, **settings)


def stored_embeddings(workspace: Workspace, committed: Committed) -> NDArray[np.float32]:
    """Return the (n, d) embeddings of a cell's images.

    Raises
    ------
    StorageError
        If a shard is gone or damaged; the next audit computes it again.
    """
    try:
        return read_embedded([(s["key"], s["sha256"]) for s in committed.details["shards"]], workspace.shards)
    except StorageError:
        workspace.lake.forget_producer(committed)
        raise


def lost_shards(workspace: Workspace, build: Build) -> list[str]:
    """Return `shards` where image embeddings lack one that their manifest lists, or one has another size."""
    if build.asset != "image_embeddings":
        return []
    committed = workspace.lake.committed(build.asset, partition=build.partition)
    listed = [] if committed is None else committed.details["shards"]
    return [] if all(workspace.shards.is_there(shard["key"]) for shard in listed) else ["a shard of embeddings"]
