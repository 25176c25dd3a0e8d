"""What the papers printed, beside what this audit measured."""

import dagster as dg
import polars as pl

from assets.results import OWNERS, markdown_table, materialised
from plumbline.report.comparison import checkpoint_fits, compare_with_published
from plumbline.storage import Committed
from resources.places import PLANTED, Places


@dg.asset(
    deps=["metric_table", "factor_effects"],
    group_name="findings",
    owners=OWNERS,
    kinds={"polars", "parquet"},
    code_version="2",
)
def paper_comparison(places: dg.ResourceParam[Places]) -> dg.MaterializeResult:
    """The numbers that papers published, beside those that this audit measured of the same thing.

    One row for every printed number whose checkpoint (by its address), dataset and metric are in the audit: the cell
    of the paper, what is printed there, what was measured, the difference, and whether the measured interval holds
    what the paper rounded. Printed numbers that are suspect or cannot be compared are shown with the reason and are not
    judged. The planted world has no published numbers: its table is empty.
    """
    lake, audit = places.lake, places.audit
    made = lake.require("metric_table")
    table = compare_with_published(
        lake.read_table("metric_table", made=made),
        encoders=_addresses(places),
        # A planted folder is laid out like the real dataset, and is not it.
        datasets={
            n: entry.reader for n, entry in audit.datasets.items() if not entry.root.startswith(PLANTED)
        },
        effects=_effects(places, made),
        pooled=list(made.details.get("pooled", {}).get("models", ())),
        scorers={name: getattr(entry, "origin", None) or entry.kind for name, entry in audit.scorers.items()},
    )
    details = {"audit_id": made.details["audit_id"], "metric_table": made.sha256}
    written = lake.write_table("paper_comparison", table, details=details)
    differing = table.filter(pl.col("within").not_()).sort("difference")
    return materialised(
        written,
        lake=lake,
        frame=table,
        within=int(table["within"].sum()),
        differing=differing.height,
        not_judged=table["within"].null_count(),
        differences=dg.MetadataValue.md(markdown_table(differing.select(_SHOWN).head(20))),
        fits=dg.MetadataValue.md(markdown_table(checkpoint_fits(table))),
    )


_SHOWN = (
    "paper",
    "table",
    "row",
    "column",
    "model",
    "dataset",
    "published",
    "measured",
    "ci_low",
    "ci_high",
    "note",
)


def _addresses(places: Places) -> dict[str, str]:
    """Return encoder or generative model -> its address; of an endpoint, the name that it is served under."""
    audit = places.audit
    found = {name: entry.address for name, entry in audit.encoders.items()}
    for name, entry in audit.lvlms.items():
        found[name] = entry.address or (entry.endpoint.model if entry.endpoint else "")
    return found


def _effects(places: Places, made: Committed) -> pl.DataFrame | None:
    """Return the factor effects, if they are of the same audit as the metric table."""
    effects = places.lake.committed("factor_effects")
    if effects is None or effects.details["audit_id"] != made.details["audit_id"]:
        return None
    return places.lake.read_table("factor_effects", made=effects)
