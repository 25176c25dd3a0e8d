"""What mitigations do to each checkpoint, one finding a mitigation, model and dataset."""

from __future__ import annotations

import polars as pl

from plumbline.metrics.transfer_schema import IMPROVED, WORSENED
from plumbline.report.finding import Finding
from plumbline.report.numbers import bare_p, count
from plumbline.report.reading import Reading
from plumbline.report.recommendation import changed, foremost
from plumbline.report.rows import Row, defined, reason_of
from plumbline.report.transfer import COSTS, JUDGED, Tried, tried
from plumbline.report.transfer_words import change, change_interval

_BIAS = (*JUDGED, "trident")


def transfer_findings(transfer: pl.DataFrame | None, reading: Reading) -> list[Finding]:
    """Return what a table of bias transfer says; nothing of mitigations that leak, or without a table.

    Parameters
    ----------
    transfer : DataFrame or None
        In `plumbline.metrics.transfer_schema.TRANSFER_SCHEMA`.
    """
    if transfer is None:
        return []
    cells = transfer.select("dataset", "model").unique().sort("dataset", "model").rows()
    found = [one for d, m in cells for one in tried(transfer, dataset=d, model=m, leaking=reading.leaking)]
    return [_finding(one, reading) for one in found if one.rows and not one.leaking]


def _finding(one: Tried, reading: Reading) -> Finding:
    better = one.of(*_BIAS, verdict=IMPROVED)
    worse = one.worsened + one.of("trident", verdict=WORSENED)
    costs = one.of(*COSTS, verdict=WORSENED)
    level, subject = reading.confidence, f"{one.model} on {one.dataset}: {one.name}"
    if worse:
        told = ", but ".join(changed(rows, level) for rows in (better, worse) if rows)
        told += f"; it also costs: it {changed(costs, level, most=1)}" if costs else ""
        short = (
            f"{one.condition} helps in one place and harms in another"
            if better
            else f"Made worse by {one.condition}"
        )
        return _of(one, "cost", worse, short, f"{subject} {told}.")
    if costs:
        helped = f"{changed(better, level)}, but " if better else ""
        return _of(
            one, "cost", costs, f"Cost of {one.condition}", f"{subject} {helped}{changed(costs, level)}."
        )
    if better:
        told = (
            f"{subject} {changed(better, level)}; no evidence that it makes another of the comparisons worse."
        )
        return _of(one, "gain", better, f"Improved by {one.condition}", told)
    return _nothing(one, subject)


def _nothing(one: Tried, subject: str) -> Finding:
    known = [row for row in one.rows if defined(row["value"])]
    if not known:
        told = f"{subject}: every comparison is undefined: {reason_of(one.rows[0])}."
        return _of(one, "undefined", [one.rows[0]], f"undefined: what {one.condition} changes", told)
    n = max((row["n"] or 0 for row in known), default=0)
    told = (
        f"{subject} shows no evidence of a change in {len(known)} comparisons on up to {count(n)} images. This does "
        f"not show that it changes nothing."
    )
    return _of(one, "none", known, f"no evidence of a change by {one.condition}", told)


def _of(one: Tried, tone: str, rows: list[Row], short: str, sentence: str) -> Finding:
    first = foremost(rows, 1)[0] if tone in ("cost", "gain") else rows[0]
    return Finding(
        tone=tone,
        topic=("transfer", one.dataset, one.condition),
        model=one.model,
        dataset=one.dataset,
        short=short,
        sentence=sentence,
        value=first["value"] if defined(first["value"]) else float("nan"),
        value_text=change(first),
        interval_text=change_interval(first),
        q_text=bare_p(first["q"]),
        # Skews and shares have different units: what makes a finding strong is how many comparisons it is about.
        strength=float(len(rows)) if tone != "none" else 0.0,
    )
