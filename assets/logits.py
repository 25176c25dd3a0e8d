"""Images against prompts: one matrix product a cell, kept for every metric to come."""

import dagster as dg
import numpy as np

from assets.cells import cell_suites
from assets.gates import require_passed
from assets.partitions import GRID, cell_of
from assets.results import OWNERS, materialised
from plumbline.digests import digest_json
from plumbline.encoders.embedding import read_embedded
from plumbline.errors import CheckpointError
from resources.places import Places


@dg.asset(
    deps=["image_embeddings", "text_embeddings", "extended_records"],
    partitions_def=GRID,
    group_name="logits",
    owners=OWNERS,
    kinds={"numpy", "safetensors"},
    code_version="1",
)
def probe_logits(context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]) -> dg.MaterializeResult:
    """Raw dot products of every image with every prompt that the audit asks of this cell, and the norms of both.

    Dot products serve Trident as its released code takes them; divided by the norms they are the cosines that the
    contrastive audit uses. No model is loaded.
    """
    dataset, model = cell_of(context)
    require_passed(context, places, dataset, of=("records", "extended_records"))
    lake = places.lake
    images = lake.require("image_embeddings", partition=context.partition_key)
    texts = lake.require("text_embeddings", partition=model)
    if images.details["checkpoint"] != texts.details["checkpoint"]:
        raise CheckpointError(
            f"the checkpoint of `{model}` was replaced between its images and its prompts",
            found=f"images by {images.details['checkpoint'][:12]}, prompts by {texts.details['checkpoint'][:12]}",
            expected="one checkpoint",
            hint="materialise `text_embeddings` and `image_embeddings` of this encoder again",
        )
    wanted = list(
        dict.fromkeys(text for suite in cell_suites(places, dataset, model) for text in suite.texts)
    )
    rows = [texts.details["texts"].index(text) for text in wanted]
    image = read_embedded([(s["key"], s["sha256"]) for s in images.details["shards"]], places.shards)
    text = lake.read_arrays("text_embeddings", made=texts)["embedding"][rows]
    arrays = {
        "dot": image @ text.T,
        "image_norm": np.linalg.norm(image, axis=1),
        "text_norm": np.linalg.norm(text, axis=1),
    }
    details = {
        "texts": wanted,
        "checkpoint": texts.details["checkpoint"],
        "weights_sha256": texts.details["weights_sha256"],
        "logit_scale": texts.details["logit_scale"],
        "images": digest_json(images.details["shards"]),
        "records_sha256": images.details["records_sha256"],
    }
    made = lake.write_arrays("probe_logits", arrays, partition=context.partition_key, details=details)
    return materialised(made, lake=lake, prompts=len(wanted), images=int(image.shape[0]))
