"""Rows that say what errors of the automatic gender label do to the mixed Trident tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.metrics.label_error import CorrectedRates, corrected_rates, rate_bounds
from plumbline.metrics.settings import MetricSettings
from plumbline.metrics.trident import PROBE, RIGHT
from plumbline.statistics.counts import count_table
from plumbline.statistics.groups import Groups, label_codes
from plumbline.statistics.intervals import wilson
from plumbline.statistics.reasons import group_size_reason, joined
from plumbline.tables.schema import Row
from plumbline.tables.suites import GENDERS


@dataclass(frozen=True)
class LabelledTests:
    """The one-probe tests of a suite on images with an automatic gender label.

    Attributes
    ----------
    common : dict
        Columns that every row has.
    probes : sequence of str
    outcomes : (p, n) int64
        See `plumbline.metrics.trident.probe_outcomes`.
    classes : Groups
        True classes; -1 for images that do not count.
    automatic, true : (n,) int64
        Genders by the labeller and by the dataset, as positions in `GENDERS`; -1 where there is none.
    """

    common: Row
    probes: Sequence[str]
    outcomes: NDArray[np.int64]
    classes: Groups
    automatic: NDArray[np.int64]
    true: NDArray[np.int64]

    def table(
        self, labels: NDArray[np.int64], outcomes: NDArray[np.int64], n_outcomes: int
    ) -> NDArray[np.int64]:
        """Count images by class, label and outcome, (..., C, 2, n_outcomes)."""
        known = (self.classes.codes >= 0) & (labels >= 0)
        codes = np.where(known, self.classes.codes * 2 + labels, -1)
        counted = count_table(codes, outcomes, n_groups=2 * len(self.classes.names), n_outcomes=n_outcomes)
        return counted.reshape(*counted.shape[:-2], len(self.classes.names), 2, n_outcomes)


def true_genders(records: pl.DataFrame) -> NDArray[np.int64]:
    """Return the dataset's own gender of each record as a position in `GENDERS`, -1 where it has none."""
    if "gender" not in records.columns:
        return np.full(records.height, -1, dtype=np.int64)
    return label_codes(records["gender"], GENDERS)


def label_error_rows(tests: LabelledTests, *, settings: MetricSettings) -> list[Row]:
    """Return the rows of the mixed tests that tell the labeller's errors from the model's.

    Where a class has images of known gender: `label_corrected`, the rates by automatic label with the labeller's own
    confusion in that class undone (`plumbline.metrics.label_error.corrected_rates`), as P(class → probe) and as macro
    accuracy. It takes errors to be unrelated to the model's answer: where it and `true_labels` part, they are not.
    Elsewhere `label_error_low` and `label_error_high`: how far P(class → probe) could lie from what is shown if the
    labeller were wrong as often as it may be, on whichever images.
    """
    counted = tests.table(tests.automatic, tests.outcomes, 3)
    # (C, automatic, true) to (C, true, automatic).
    both = np.where(tests.automatic >= 0, tests.true, -1)
    joint = tests.table(both, np.maximum(tests.automatic, 0)[None], 2)[0]
    sizes, without = counted[0].sum(axis=-1), joint.sum(axis=(1, 2)) == 0
    rows: list[Row] = []
    if not without.all():
        hits = np.moveaxis(counted[..., [PROBE, RIGHT]], -1, 0)
        found = corrected_rates(hits, sizes, joint, confidence=settings.confidence)
        rows += _corrected_rows(tests, found, sizes, settings)
    if without.any():
        rows += _bound_rows(tests, counted[..., PROBE], sizes, joint, settings)
    return rows


def _groups(tests: LabelledTests) -> Iterator[tuple[int, int, str]]:
    for c, name in enumerate(tests.classes.names):
        for g, gender in enumerate(GENDERS):
            yield c, g, f"{name}_{gender}"


def _corrected_rows(
    tests: LabelledTests, found: CorrectedRates, sizes: NDArray[np.int64], settings: MetricSettings
) -> Iterator[Row]:
    by_class = sizes.sum(axis=1)
    undefined = [2 * int(n > 0) for n, reason in zip(by_class, found.reason) if reason]
    left_out = (
        f"{sum(undefined)} of {2 * len(by_class)} groups cannot be corrected, left out"
        if any(undefined)
        else None
    )
    for i, probe in enumerate(tests.probes):
        for c, g, group in _groups(tests):
            reason = joined(
                group_size_reason(int(by_class[c]), settings.min_group),
                found.reason[c],
                _clipped_reason(found.raw[0, i, c, g], found.ci_low[0, i, c, g]),
            )
            yield tests.common | {
                "metric": "probe_rate",
                "definition": "label_corrected",
                "probe": probe,
                "group": group,
                "value": found.value[0, i, c, g],
                "ci_low": found.ci_low[0, i, c, g],
                "ci_high": found.ci_high[0, i, c, g],
                "n": int(by_class[c]),
                "reason": reason,
            }
        yield tests.common | {
            "metric": "macro_accuracy",
            "definition": "label_corrected",
            "probe": probe,
            "value": found.mean[1, i],
            "ci_low": found.mean_low[1, i],
            "ci_high": found.mean_high[1, i],
            "n": int(by_class.sum()),
            "reason": left_out,
        }


def _clipped_reason(raw: float, low: float) -> str | None:
    if not (raw < 0 or raw > 1):
        return None
    clipped = f"clipped to 0 .. 1 from {raw:.3f}"
    impossible = "no interval: it would lie outside, so the labeller's errors go with the model's answer"
    return joined(clipped, impossible if np.isnan(low) else None)


def _bound_rows(
    tests: LabelledTests,
    hits: NDArray[np.int64],
    sizes: NDArray[np.int64],
    joint: NDArray[np.int64],
    settings: MetricSettings,
) -> Iterator[Row]:
    error, why = _assumed_error(joint, settings)
    bounds = rate_bounds(hits, sizes, error=error, confidence=settings.confidence)
    ends = {
        "label_error_low": (bounds.low, bounds.low_interval),
        "label_error_high": (bounds.high, bounds.high_interval),
    }
    for definition, (value, interval) in ends.items():
        for i, probe in enumerate(tests.probes):
            for c, g, group in _groups(tests):
                if joint[c].sum():
                    continue
                yield tests.common | {
                    "metric": "probe_rate",
                    "definition": definition,
                    "probe": probe,
                    "group": group,
                    "value": value[i, c, g],
                    "ci_low": interval[i, c, g, 0],
                    "ci_high": interval[i, c, g, 1],
                    "n": int(sizes[c, g]),
                    "reason": joined(group_size_reason(int(sizes[c, g]), settings.min_group), why),
                }


def _assumed_error(joint: NDArray[np.int64], settings: MetricSettings) -> tuple[float, str]:
    """Return how many labels may be wrong: as many as where the truth is known, otherwise as the settings say."""
    known, wrong = int(joint.sum()), int(joint[:, 0, 1].sum() + joint[:, 1, 0].sum())
    if not known:
        assumed = settings.label_error
        return (
            assumed,
            f"if up to {assumed:.0%} of the automatic labels are wrong (assumed: no image has its own gender)",
        )
    measured = min(float(wilson(wrong, known, confidence=settings.confidence)[1]), 0.499)
    return measured, (
        f"if up to {measured:.0%} of the automatic labels are wrong (upper end of {wrong} of {known} in other classes)"
    )
