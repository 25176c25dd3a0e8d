"""False discovery rate over a table of tests."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

FAMILIES: dict[str, tuple[str, ...]] = {
    "metric_table": ("metric", "definition", "condition", "statistic", "scorer"),
    "factor_effects": ("metric", "definition"),
    "bias_transfer": ("condition", "kind", "metric", "definition"),
    "audit_diff": ("metric", "definition", "condition", "statistic", "scorer"),
}
"""Table of tests -> the columns that define its families.

A reader scans one metric over all encoders, datasets, attributes, events and probes (or over all factors and pairs of
checkpoints) and picks out what is significant: that is the family. Of generated texts that holds for models, prompts,
instructions and occupations alike: who looks for an instruction that helps scans them all. Variants of one metric
(definitions, statistics, scorers of the same texts) are kept in separate families, because they retest the same
hypothesis; a condition (before, after a mitigation) is another question. `bias_transfer` is read for one mitigation at
a time, over all encoders and datasets; the parity differences of an outcome and of a Trident probe differ in `kind`.
`audit_diff` is read as `metric_table` is.
"""


def q_values(p: ArrayLike) -> NDArray[np.float64]:
    """Return Benjamini-Hochberg adjusted p-values of one family (Benjamini & Hochberg 1995), by scipy.

    Parameters
    ----------
    p : (m,) float
        nan is a test that was not made: it stays nan and does not count in m.
    """
    from scipy.stats import false_discovery_control

    values = np.asarray(p, dtype=np.float64)
    q = np.full(values.shape, np.nan)
    tested = ~np.isnan(values)
    if tested.any():
        q[tested] = false_discovery_control(values[tested], method="bh")
    return q


def add_q_values(table: pl.DataFrame, *, of: str = "metric_table") -> pl.DataFrame:
    """Fill column `q` of a table, named in `FAMILIES`, from column `p`, within each family; row order is kept.

    Null and nan p-values give a null q.
    """
    family = FAMILIES[of]
    p = table["p"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    order = table.select(family).with_row_index("row").group_by(family, maintain_order=True).agg("row")["row"]
    q = np.full(len(p), np.nan)
    for rows in order:
        index = rows.to_numpy()
        q[index] = q_values(p[index])
    return table.with_columns(pl.Series("q", q).fill_nan(None))
