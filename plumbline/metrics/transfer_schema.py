"""The table of what a mitigation changes: one row a paired effect, with its verdict."""

from __future__ import annotations

import polars as pl

from plumbline.tables.schema import ESTIMATE, Schema

TRANSFER_SCHEMA: Schema = {
    # what was compared
    "model": pl.String,
    "dataset": pl.String,
    "condition": pl.String,
    "method": pl.String,
    "kind": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "event": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    # the difference after - before, on the same images
    **ESTIMATE,
    "value_after": pl.Float64,
    "value_before": pl.Float64,
    "better": pl.String,
    "verdict": pl.String,
}
"""`condition` is the mitigation's id in the audit file, `method` what it is; `attribute` is null for all images.

`kind` says what a row is of:

- `axis`: Max Skew (`mean_over_pairs`, `smoothed`) and the parity difference of every event of the outcome suites
  that both cells have, by every attribute, and of the mean over the three tasks.
- `harm`: the share of all images in the event; every event of the outcome suites is a harmful one.
- `trident`: P(class → probe), averaged over the probes of a valence (`event`), of all labelled images
  (`probe_rate`), and its largest minus smallest value over the classes (suite `trident`) and over classes by
  automatic gender label (`trident_mixed`). A class that becomes the probe is lost, whatever the probe's valence.
- `cost` (`better` is `higher`; for all others `lower`): `macro_accuracy` of the one-probe tests, averaged over
  classes and probes; `zero_shot_accuracy` among the classes alone, averaged over classes (`macro`) or images
  (`micro`); and retrieval.

`better` is `lower` or `higher`; `verdict` one of `VERDICTS`.
"""

IMPROVED, WORSENED, NO_EVIDENCE, UNDEFINED = "improved", "worsened", "no evidence", "undefined"
VERDICTS = (IMPROVED, WORSENED, NO_EVIDENCE, UNDEFINED)
"""`no evidence`: chance alone may explain the difference (q at or above 1 - confidence); never "no difference"."""
