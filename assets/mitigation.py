"""What helps, and at what cost: fits on a few labelled images, judged on the others."""

import dagster as dg

from assets.cells import read_cell, with_lineage
from assets.partitions import GRID, cell_of
from assets.pictures import draw_pictures
from assets.results import OWNERS, materialised
from plumbline.mitigation import LogitAdjustment, adjustment_rows, fit_cell
from resources.places import Places

_SELECTIONS = ("train_loss", "released")
_SPEC = {"partitions_def": GRID, "group_name": "mitigation", "owners": OWNERS, "code_version": "1"}


@dg.asset(deps=["probe_logits", "extended_records"], kinds={"numpy", "safetensors"}, **_SPEC)
def logit_adjustment(
    context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]
) -> dg.MaterializeResult:
    """Adaptive Logit Adjustment: one factor a candidate that redistributes probability between classes and probe.

    Fitted on a few images a class for all probes and trials at once. Two fits are kept: the default one, chosen by
    training loss alone, and the variant `released`, which lets test accuracy choose and is marked as leaking.
    """
    dataset, model = cell_of(context)
    cell, audit = read_cell(places, dataset, model), places.audit
    arrays, details = {}, {}
    for selection in _SELECTIONS:
        fitted = fit_cell(
            cell, seed=audit.statistics.seed, selection=selection, **audit.adjustment.model_dump()
        )
        if fitted is not None:
            arrays |= {f"{selection}.{name}": array for name, array in fitted.parameters().items()}
            details[selection] = fitted.metadata()
    made = places.lake.write_arrays(
        "logit_adjustment", arrays, partition=context.partition_key, details={"fits": details}
    )
    return materialised(made, lake=places.lake, fits=dg.MetadataValue.json(details))


@dg.asset(deps=["logit_adjustment", "probe_logits", "extended_records"], kinds={"numpy", "polars"}, **_SPEC)
def mitigated_metrics(
    context: dg.AssetExecutionContext, places: dg.ResourceParam[Places]
) -> dg.MaterializeResult:
    """Accuracy and P(class → probe) before and after the adjustment, on images that it was not fitted on."""
    dataset, model = cell_of(context)
    lake, statistics = places.lake, places.audit.statistics
    frame = adjustment_rows(
        read_cell(places, dataset, model),
        read_adjustments(places, context.partition_key),
        confidence=statistics.confidence,
        min_group=statistics.min_group,
    )
    frame = with_lineage(frame, places, dataset, model)
    made = lake.write_table("mitigated_metrics", frame, partition=context.partition_key)
    return materialised(
        made,
        lake=lake,
        frame=frame.drop("cell_id", "dataset_digest", "checkpoint_sha256"),
        **draw_pictures(places, frame, asset="mitigated_metrics", partition=context.partition_key),
    )


def read_adjustments(places: Places, partition: str) -> list[LogitAdjustment]:
    """Return the stored fits of a cell, the default one first."""
    fits = places.lake.require("logit_adjustment", partition=partition).details["fits"]
    arrays = places.lake.read_arrays("logit_adjustment", partition=partition)
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
