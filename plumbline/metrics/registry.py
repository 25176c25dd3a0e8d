"""The metric families, the metrics, and the table of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from plumbline.catalog.schema import polars_schema
from plumbline.metrics.associations import ASSOCIATIONS
from plumbline.metrics.confounds import CONFOUNDS
from plumbline.metrics.evidence import add_equivalence, add_power
from plumbline.metrics.family import (
    ImageFamily,
    Traits,
    families_by_name,
    former_definitions,
    former_metric_names,
    traits_by_metric,
)
from plumbline.metrics.outcomes import OUTCOMES
from plumbline.metrics.own import OWN_METRICS
from plumbline.metrics.rankings.rows import RANKINGS
from plumbline.metrics.robustness.rows import ROBUSTNESS, template_agreement
from plumbline.metrics.trident.rows import TRIDENT
from plumbline.metrics.trident.scores import normalise_probe_rates
from plumbline.metrics.zero_shot import SANITY, UTILITY
from plumbline.statistics.multiplicity import add_floor_reasons, add_q_values

FAMILIES: dict[str, ImageFamily] = families_by_name(
    OUTCOMES, TRIDENT, ASSOCIATIONS, ROBUSTNESS, RANKINGS, CONFOUNDS, SANITY, UTILITY, OWN_METRICS,
)  # fmt: skip
"""Every family by name."""

TEXT_SPACE = "valence_geometry"
"""Name of the family of text-embedding metrics: it needs a checkpoint but no dataset, so it is not in `FAMILIES`."""

METRICS: dict[str, Traits] = traits_by_metric(*FAMILIES, TEXT_SPACE)
"""Every metric by name."""


# --- The metric table: rows of every cell in one schema and one order, with normalised rates and
# q-values.

_ORDER = [
    "dataset", "model", "condition", "suite", "metric", "definition", "attribute", "event", "probe", "group",
    "reference_group", "k", "occupation", "statistic", "instruction", "prompt", "seed", "scorer",
]  # fmt: skip


def metric_table(
    frames: Sequence[pl.DataFrame],
    *,
    audit_id: str,
    confidence: float = 0.95,
    margins: Mapping[str, float] | None = None,
    permutations: int | None = None,
) -> pl.DataFrame:
    """Join the rows of all cells into the metric table.

    Parameters
    ----------
    frames : sequence of DataFrame
        Metric rows with their lineage columns, in any order.
    audit_id : str
        Identity of the audit, filled into every row.
    confidence : float
        Confidence level of the intervals of the rank correlations, which are computed here; use that of the cells.
    margins : mapping of str to float, optional
        Metric -> largest difference that does not matter, see `plumbline.metrics.evidence.add_equivalence`.
    permutations : int, optional
        Draws of the permutation tests, see `plumbline.statistics.multiplicity.add_floor_reasons`.

    Returns
    -------
    DataFrame
        The schema of `plumbline.catalog.schema`, sorted, with min-max normalised probe rates and rank correlations
        of checkpoints added, and q-values, what tests can find and equivalence filled. These depend on the whole
        audit, so `audit_id` identifies them; a `cell_id` in such a row does not. Equal inputs give equal rows in equal
        order, so the stored table is byte-identical.
    """
    schema = polars_schema()
    joined = pl.concat(frames) if frames else pl.DataFrame(schema=schema)
    if joined.height:
        agreement = template_agreement(joined, confidence=confidence)
        joined = pl.concat([joined, normalise_probe_rates(joined), agreement])
    filled = add_q_values(joined.with_columns(pl.lit(audit_id).alias("audit_id")))
    if permutations is not None:
        filled = add_floor_reasons(filled, draws=permutations)
    filled = add_power(filled, confidence=confidence)
    filled = add_equivalence(filled, margins or {}, confidence=confidence)
    return filled.select(list(schema)).sort(_ORDER, nulls_last=False, maintain_order=True)


def current_table(table: pl.DataFrame) -> pl.DataFrame:
    """Return a stored metric table with the columns and the names of metrics and definitions of this version.

    Columns that an earlier version lacked are null.
    """
    schema = polars_schema()
    lacking = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in table.columns]
    named = table.with_columns(pl.col("metric").replace(former_metric_names()), *lacking).select(list(schema))
    definition = pl.col("definition")
    for (metric, old), new in former_definitions().items():
        former = (pl.col("metric") == metric) & (pl.col("definition") == old)
        definition = pl.when(former).then(pl.lit(new)).otherwise(definition)
    return named.with_columns(definition.alias("definition"))
