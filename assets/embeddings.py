"""Images and prompts as vectors: once per content, found again ever after."""

from typing import cast

import dagster as dg
import numpy as np
import polars as pl

from assets.gates import require_passed
from assets.images import embed_listed, listed_images
from assets.partitions import ENCODERS, GRID, cell_of
from assets.recorded import asset
from assets.results import OWNERS, materialised
from assets.sources import encoder_version
from plumbline.catalog.suites import all_texts
from plumbline.digests import digest_json
from plumbline.encoders.embedding import TEXT_BATCH_ROWS, embed_texts
from plumbline.encoders.encoder import DualEncoder
from plumbline.encoders.families import FAMILIES
from resources.encoders import EncoderPool
from resources.workspace import Workspace


@asset(
    deps=["encoder_checkpoint", "prompt_suites"],
    partitions_def=ENCODERS,
    group_name="encoders",
    owners=OWNERS,
    kinds={"pytorch", "safetensors"},
    pool="gpu",
    code_version="1",
)
def text_embeddings(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace], encoders: dg.ResourceParam[EncoderPool]
) -> dg.MaterializeResult:
    """Embeddings of every prompt of every suite by one checkpoint, not normalised.

    A cross-encoder (BridgeTower) has no text embeddings: its image-text pairs are scored in `probe_logits`.
    """
    lake, encoder, texts = workspace.lake, encoders.get(context.partition_key), all_texts()
    family = FAMILIES[encoder.family]
    known = {
        "family": family.name,
        "weights_sha256": encoder.weights_sha256,
        "parameters": encoder.parameters,
        "device": encoder.device,
    }
    if family.logit == "pair":
        array, work = np.zeros((0, 0), np.float32), {"forward_passes": 0}
    else:
        embedded = embed_texts(encoder, texts, workspace.shards, batch_rows=TEXT_BATCH_ROWS)
        array, work = embedded.array, embedded.counters()
    details = {
        "texts": list(texts),
        "checkpoint": encoder_version(encoder),
        "identity": encoder.identity.digest,
        "engine": workspace.declared_engine,
        "logit_scale": 1.0 if family.logit == "pair" else cast(DualEncoder, encoder).logit_scale,
        **known,
        **work,
    }
    committed = lake.write_arrays(
        "text_embeddings", {"embedding": array}, partition=context.partition_key, details=details
    )
    return materialised(committed, lake=lake, **known | {"family": family.title}, width=int(array.shape[1]), **work)


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
    if FAMILIES[encoder.family].logit == "pair":
        index, work, version = [], {"forward_passes": 0}, [encoder.identity.digest, listed.image_ids]
    else:
        embedded = embed_listed(workspace, encoder, dataset, listed)
        index = [{"key": key, "sha256": sha256} for key, sha256 in embedded.shards]
        work, version = embedded.counters() | {"width": cast(DualEncoder, encoder).width}, index
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
