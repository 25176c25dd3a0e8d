"""Images and prompts as vectors: once per content, found again ever after."""

import dagster as dg

from assets.datasets import embed_records
from assets.gates import require_passed
from assets.partitions import ENCODERS, GRID, cell_of
from assets.results import OWNERS, materialised
from plumbline.digests import digest_json
from plumbline.encoders.embedding import embed_texts
from plumbline.tables.suites import all_texts
from resources.encoders import EncoderPool
from resources.places import Places


@dg.asset(
    deps=["encoder_checkpoint", "prompt_suites"],
    partitions_def=ENCODERS,
    group_name="encoders",
    owners=OWNERS,
    kinds={"pytorch", "safetensors"},
    pool="gpu",
    code_version="1",
)
def text_embeddings(
    context: dg.AssetExecutionContext,
    places: dg.ResourceParam[Places],
    encoders: dg.ResourceParam[EncoderPool],
) -> dg.MaterializeResult:
    """Every prompt of every suite, embedded by one checkpoint. Vectors as the model gives them, not normalised."""
    lake, encoder, texts = places.lake, encoders.get(context.partition_key), all_texts()
    embedded = embed_texts(encoder, texts, places.shards, batch_rows=places.audit.storage.batch_rows)
    details = {
        "texts": list(texts),
        "checkpoint": encoder.identity.weights,
        "weights_sha256": encoder.weights_sha256,
        "logit_scale": encoder.logit_scale,
        "parameters": encoder.parameters,
        **embedded.counters(),
    }
    made = lake.write_arrays(
        "text_embeddings", {"embedding": embedded.array}, partition=context.partition_key, details=details
    )
    return materialised(
        made,
        lake=lake,
        width=encoder.width,
        parameters=encoder.parameters,
        weights_sha256=encoder.weights_sha256,
        device=encoder.device,
        **embedded.counters(),
    )


@dg.asset(
    deps=["records", "encoder_checkpoint"],
    partitions_def=GRID,
    group_name="embeddings",
    owners=OWNERS,
    kinds={"pytorch", "safetensors"},
    pool="gpu",
    code_version="1",
)
def image_embeddings(
    context: dg.AssetExecutionContext,
    places: dg.ResourceParam[Places],
    encoders: dg.ResourceParam[EncoderPool],
) -> dg.MaterializeResult:
    """Every accepted image of a dataset, embedded by one checkpoint, in content-addressed shards.

    Computed once per content: a second run finds the shards (`forward_passes` 0), a run after a crash finishes what
    is missing, a damaged shard alone is made again.
    """
    dataset, model = cell_of(context)
    require_passed(context, places, dataset, of=("records",))
    lake, encoder = places.lake, encoders.get(model)
    recorded = lake.require("records", partition=dataset)
    records = lake.read_table("records", made=recorded)
    embedded = embed_records(places, encoder, dataset, records)
    index = [{"key": key, "sha256": sha256} for key, sha256 in embedded.shards]
    details = {
        "shards": index,
        "checkpoint": encoder.identity.weights,
        "weights_sha256": encoder.weights_sha256,
        "records_sha256": recorded.sha256,
        "device": encoder.device,
        **embedded.counters(),
    }
    made = lake.write_table(
        "image_embeddings", records.select("image_id"), partition=context.partition_key, details=details
    )
    result = materialised(
        made,
        lake=lake,
        width=encoder.width,
        shards=len(index),
        weights_sha256=encoder.weights_sha256,
        device=encoder.device,
        **embedded.counters(),
    )
    return result._replace(data_version=dg.DataVersion(digest_json(index)))
