"""Every mitigation of a cell, judged on images that it was not fitted on: its numbers, and its paired effects."""

import dagster as dg
import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.adjustments import read_adjustments
from assets.cells import JUDGING_VERSION, StoredCell, passed_cell
from assets.images import stored_embeddings
from assets.metrics import metric_settings
from assets.mitigation_fits import read_text_fits
from assets.partitions import GRID
from assets.pictures import charts_of
from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised, report_link
from assets.text_mitigations import TEXT_METHODS
from assets.up_to_date import require_up_to_date
from plumbline.mitigations.judging import Judgement, MitigatedTexts, judge_mitigations
from plumbline.mitigations.retrieval import retrieval_rows
from plumbline.mitigations.settings import METHODS
from resources.workspace import Workspace


@asset(
    deps=[
        "logit_adjustment",
        *(m.name for m in TEXT_METHODS),
        "probe_logits",
        "image_embeddings",
        "extended_records",
        "mitigation_texts",
    ],
    kinds={"numpy", "polars"},
    partitions_def=GRID,
    group_name="mitigation",
    owners=OWNERS,
    code_version=JUDGING_VERSION,
)
def mitigated_metrics(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> dg.MaterializeResult:
    """Outcome and Trident metrics after each mitigation, on held-out images.

    Also the paired effects, after minus before on the same images, on skews, harm rates and Trident rates, and on the
    costs, zero-shot accuracy and image-text retrieval. `bias_transfer` summarises them over all cells. On image-text
    pairs that the audit file names under `retrieval`, recall@k before and after.
    """
    stored, lake = passed_cell(context, workspace), workspace.lake
    if stored.mitigations:
        require_up_to_date(workspace, stored.partition, list(METHODS))
    judged = _judged(stored) if stored.mitigations else Judgement()
    frame, paired = stored.with_lineage(judged.rows), judged.effects
    lake.write_table("mitigation_effects", paired, partition=stored.partition)
    committed = lake.write_table("mitigated_metrics", frame, partition=stored.partition)
    clear = paired.filter(pl.col("p") < 0.01).sort("p").drop("model", "dataset", "method", "reason")
    return materialised(
        committed,
        lake=lake,
        frame=frame.drop("cell_id", "dataset_digest", "checkpoint_sha256"),
        report=report_link(stored.model, stored.dataset),
        clearest_effects=dg.MetadataValue.md(markdown_table(clear.head(20))),
        **charts_of(
            workspace, frame, asset="mitigated_metrics", partition=context.partition_key, names=("adjustment",)
        ),
    )


def _judged(stored: StoredCell) -> Judgement:
    fits = [(method.name, read_text_fits(stored, method.name)) for method in TEXT_METHODS]
    retrieval = retrieval_rows(
        [pair for _, each in fits for pair in each.retrieval.items()],
        model=stored.model,
        dataset=stored.dataset,
        k=stored.workspace.audit.retrieval.k,
        settings=metric_settings(stored.workspace),
    )
    texts = [MitigatedTexts(name, each.texts, each.before, each.features) for name, each in fits if each.fits]
    judged = judge_mitigations(
        stored.read(),
        read_adjustments(stored),
        texts,
        images=_images(stored) if texts else None,
        logit_scale=stored.logits.details["logit_scale"],
        scaled=stored.family.logit == "scaled_cosine",
        settings=metric_settings(stored.workspace),
    )
    return judged._replace(rows=pl.concat([judged.rows, retrieval]))


def _images(stored: StoredCell) -> NDArray[np.float32]:
    committed = stored.workspace.lake.require("image_embeddings", partition=stored.partition)
    return stored_embeddings(stored.workspace, committed)
