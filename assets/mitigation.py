"""What helps, and at what cost: fits on a few labelled images, judged on the others."""

import dagster as dg

from assets.cells import ADJUSTMENT_VERSION, StoredCell, passed_cell
from assets.partitions import GRID
from assets.pictures import draw_pictures
from assets.results import OWNERS, materialised
from plumbline.errors import StorageError
from plumbline.mitigation import LogitAdjustment, adjustment_rows, fit_cell
from resources.places import Places

_SELECTIONS = ("train_loss", "released")
_SPEC = {
    "partitions_def": GRID,
    "group_name": "mitigation",
    "owners": OWNERS,
    "code_version": ADJUSTMENT_VERSION,
}


@dg.asset(deps=["probe_logits", "extended_records"], kinds={"numpy", "safetensors"}, **_SPEC)
def logit_adjustment(
    context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]
) -> dg.MaterializeResult:
    """Adaptive Logit Adjustment: one factor a candidate that redistributes probability between classes and probe.

    Fitted on a few images a class for all probes and trials at once. Two fits are kept: the default one, chosen by
    training loss alone, and the variant `released`, which lets test accuracy choose and is marked as leaking.
    """
    stored, audit = passed_cell(context, places), places.audit
    cell = stored.read()
    arrays, details = {}, {}
    for selection in _SELECTIONS:
        fitted = fit_cell(
            cell, seed=audit.statistics.seed, selection=selection, **audit.adjustment.model_dump()
        )
        if fitted is not None:
            arrays |= {f"{selection}.{name}": array for name, array in fitted.parameters().items()}
            details[selection] = fitted.metadata()
    made = places.lake.write_arrays(
        "logit_adjustment",
        arrays,
        partition=stored.partition,
        details={"fits": details, "cell_id": stored.identity},
    )
    return materialised(made, lake=places.lake, fits=dg.MetadataValue.json(details))


@dg.asset(deps=["logit_adjustment", "probe_logits", "extended_records"], kinds={"numpy", "polars"}, **_SPEC)
def mitigated_metrics(
    context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]
) -> dg.MaterializeResult:
    """Accuracy and P(class → probe) before and after the adjustment, on images that it was not fitted on."""
    stored, lake, statistics = passed_cell(context, places), places.lake, places.audit.statistics
    frame = adjustment_rows(
        stored.read(),
        read_adjustments(stored),
        confidence=statistics.confidence,
        min_group=statistics.min_group,
    )
    frame = stored.with_lineage(frame)
    made = lake.write_table(
        "mitigated_metrics", frame, partition=stored.partition, details={"cell_id": stored.identity}
    )
    return materialised(
        made,
        lake=lake,
        frame=frame.drop("cell_id", "dataset_digest", "checkpoint_sha256"),
        **draw_pictures(places, frame, asset="mitigated_metrics", partition=context.partition_key),
    )


def read_adjustments(stored: StoredCell) -> list[LogitAdjustment]:
    """Return the stored fits of a cell, the default one first.

    Raises
    ------
    StorageError
        If they were fitted on other content than the cell has now.
    """
    lake = stored.places.lake
    made = lake.require("logit_adjustment", partition=stored.partition)
    if made.details["cell_id"] != stored.identity:
        raise StorageError(
            "the stored adjustment was fitted on other inputs or settings",
            where=stored.partition,
            hint="materialise `logit_adjustment` of this cell again",
        )
    fits, arrays = made.details["fits"], lake.read_arrays("logit_adjustment", made=made)
    return [
        LogitAdjustment.from_parameters(
            {
                name.split(".", 1)[1]: array
                for name, array in arrays.items()
                if name.startswith(f"{selection}.")
            },
            fits[selection],
        )
        for selection in _SELECTIONS
        if selection in fits
    ]
