"""Images and prompts as vectors: once per content, found again ever after."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import dagster as dg
import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.gates import require_passed
from assets.images import embed_listed, listed_images
from assets.partitions import ENCODERS, GRID, cell_of
from assets.recorded import asset
from assets.results import OWNERS, materialised
from assets.sources import encoder_version
from plumbline.catalog.suites import own_texts
from plumbline.digests import digest_bytes, digest_json
from plumbline.encoders.embedding import Embedded, embed_texts
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import FAMILIES, WITHOUT_VECTORS
from plumbline.encoders.sharding import CacheStats
from plumbline.encoders.stored_embeddings import StoredEmbeddings
from plumbline.encoders.text_lengths import tokens_beyond, too_long_error
from plumbline.errors import StorageError
from plumbline.reasons import in_words
from plumbline.recording import unrecorded
from plumbline.storage import Committed
from resources.encoders import EncoderPool
from resources.workspace import Workspace


@asset(
    deps=["encoder_checkpoint", "prompt_suites"],
    partitions_def=ENCODERS,
    group_name="encoders",
    owners=OWNERS,
    kinds={"pytorch", "safetensors"},
    pool="gpu",
    code_version="2",
)
def text_embeddings(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], encoders: dg.ResourceParam[EncoderPool]
) -> dg.MaterializeResult:
    """Embeddings of every prompt of every suite by one checkpoint, not normalised.

    A cross-encoder (BridgeTower) has no text embeddings: its image-text pairs are scored in `probe_logits`. Nor have
    predictions that were made elsewhere, which are read there.
    """
    lake, encoder, texts_of = workspace.lake, encoders.get(context.partition_key), own_texts(workspace.own_suites)
    family = FAMILIES[encoder.family]
    known = {
        "family": family.name,
        "weights_sha256": encoder.weights_sha256,
        "parameters": encoder.parameters,
        "device": encoder.device,
    }
    # Suite by suite, so that a word more in one leaves the last bits of the others as they are.
    embedded: dict[str, Embedded] = {}
    # What an encoder does not take matters where a suite that is asked has it, see `StoredPrompts.read`.
    unread = tokens_beyond(encoder, [text for texts in texts_of.values() for text in texts])
    if isinstance(encoder, StoredEmbeddings):
        texts_of = {name: encoder.known(texts) for name, texts in texts_of.items()}
    texts_of = {
        name: there for name, texts in texts_of.items() if (there := tuple(t for t in texts if t not in unread))
    }
    if family.logit not in WITHOUT_VECTORS:
        embedded = {
            name: embed_texts(cast(DualEncoder, encoder), texts_of[name], workspace.shards) for name in texts_of
        }
    array = np.concatenate([each.array for each in embedded.values()]) if embedded else np.zeros((0, 0), np.float32)
    work = CacheStats.together([each.work for each in embedded.values()]).counters() | {"images_or_texts": len(array)}
    details = {
        "texts": [text for texts in texts_of.values() for text in texts],
        "too_long": unread,
        # By suite, in the order of the texts: how many they are, and the digest of their embeddings.
        "embedded": {
            name: [len(texts_of[name]), digest_bytes(each.array.tobytes())] for name, each in embedded.items()
        },
        "checkpoint": encoder_version(encoder),
        "identity": encoder.identity.digest,
        "engine": workspace.declared_engine,
        "logit_scale": 1.0 if family.logit in WITHOUT_VECTORS else cast(DualEncoder, encoder).logit_scale,
        **known,
        **work,
    }
    committed = lake.write_arrays(
        "text_embeddings", {"embedding": array}, partition=context.partition_key, details=details
    )
    return materialised(committed, lake=lake, **known | {"family": family.title}, width=int(array.shape[1]), **work)


_OF_THE_MODEL = ("checkpoint", "identity", "engine", "family", "logit_scale", "weights_sha256")


@dataclass(frozen=True)
class StoredPrompts:
    """The prompts of all suites as an encoder embedded them; of what was embedded only what is used counts as read.

    Attributes
    ----------
    stored : Committed
        Of `text_embeddings`.
    """

    workspace: Workspace
    stored: Committed

    @classmethod
    def find(cls, workspace: Workspace, encoder: str) -> "StoredPrompts":
        """Read the manifest of an encoder's prompts.

        Raises
        ------
        StorageError
            If there is none.
        """
        with unrecorded():
            prompts = cls(workspace, workspace.lake.require("text_embeddings", partition=encoder))
        workspace.note("model_of_prompts", encoder, value=prompts.about_model)
        return prompts

    @property
    def about_model(self) -> list[object]:
        """Return what is stored of the model beside its embeddings: checkpoint, family, scale, engine."""
        return [self.stored.details.get(name) for name in _OF_THE_MODEL]

    @property
    def digests(self) -> dict[str, str]:
        """Return suite -> digest of the embeddings of its own texts; none where the model embeds no texts."""
        return {name: digest for name, (_, digest) in self.stored.details.get("embedded", {}).items()}

    def digests_of(self, texts: Sequence[str]) -> dict[str, str]:
        """Return the digests of the suites whose own these texts are; of one that was not embedded nothing."""
        suites = dict.fromkeys(self._suite_of[text] for text in texts if text in self._suite_of)
        return {suite: self.digests[suite] for suite in suites}

    @cached_property
    def _suite_of(self) -> dict[str, str]:
        embedded = self.stored.details.get("embedded", {})
        suites = [name for name, (number, _) in embedded.items() for _ in range(number)]
        return dict(zip(self.stored.details["texts"], suites))

    def lacking(self, texts: Sequence[str]) -> list[str]:
        """Return the texts that were not embedded."""
        return [text for text in texts if text not in self._suite_of]

    def read(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the (t, d) embeddings of texts, not normalised.

        Raises
        ------
        StorageError
            If one was not embedded.
        EncodingError
            If one is longer than the encoder takes.
        """
        lacking = self.lacking(texts)
        of_long = self.stored.details.get("too_long", {})
        if long := [text for text in lacking if text in of_long]:
            many = f"; {len(long)} of {len(texts)} prompts are too long" if len(long) > 1 else ""
            raise too_long_error(long[0], f"{of_long[long[0]]} tokens{many}")
        if lacking:
            raise StorageError(
                "the stored prompts are of another version of the suites",
                found=f"nothing for {len(lacking)} prompts, such as `{lacking[0]}`",
                hint="materialise `text_embeddings` of this encoder again",
            )
        for suite, digest in self.digests_of(texts).items():
            self.workspace.note("embedded_prompts", self.stored.partition, suite, value=digest)
        row = {text: i for i, text in enumerate(self._suite_of)}
        array = self.workspace.lake.read_arrays("text_embeddings", manifest=self.stored)["embedding"]
        return array[[row[text] for text in texts]]


@asset(
    deps=["records", "encoder_checkpoint"],
    partitions_def=GRID,
    group_name="embeddings",
    owners=OWNERS,
    kinds={"pytorch", "safetensors"},
    pool="gpu",
    code_version="1",
)
def image_embeddings(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], encoders: dg.ResourceParam[EncoderPool]
) -> dg.MaterializeResult:
    """Embeddings of every accepted image of a dataset by one checkpoint, in content-addressed shards.

    Computed once per content: a second run reads the shards (`forward_passes` 0), a run after a crash computes only
    missing shards, and a damaged shard is recomputed. A cross-encoder (BridgeTower) has no image embeddings: its
    image-text pairs are scored in `probe_logits`.
    """
    dataset, model = cell_of(context)
    require_passed(workspace, dataset, of=("records",))
    lake, encoder = workspace.lake, encoders.get(model)
    listed = listed_images(workspace, dataset)
    known = {"weights_sha256": encoder.weights_sha256, "device": encoder.device}
    if FAMILIES[encoder.family].logit in WITHOUT_VECTORS:
        index, work, version = [], {"forward_passes": 0}, [encoder.identity.digest, listed.image_ids]
    else:
        embedded = embed_listed(workspace, encoder, dataset, listed)
        index = [{"key": key, "sha256": sha256} for key, sha256 in embedded.shards]
        work, version = embedded.counters() | {"width": cast(DualEncoder, encoder).width}, index
        known |= {"said": in_words(embedded.notes)} if embedded.notes else {}
    details = {
        "shards": index,
        "images": digest_json(version),
        "checkpoint": encoder_version(encoder),
        "identity": encoder.identity.digest,
        "engine": workspace.declared_engine,
        "records_sha256": listed.records_sha256,
        **known,
        **work,
    }
    committed = lake.write_table(
        "image_embeddings",
        pl.DataFrame({"image_id": listed.image_ids}),
        partition=context.partition_key,
        details=details,
    )
    result = materialised(committed, lake=lake, shards=len(index), **known, **work)
    return result._replace(data_version=dg.DataVersion(details["images"]))
