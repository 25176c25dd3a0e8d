"""What to use for a checkpoint, and what it would make worse: one rule, and the sentence that it leads to.

A mitigation is recommended where it improves at least one of the six contrastive metrics or a harm rate, worsens
no axis (other groups and the mean of the tasks included, by whichever reading) and no harm rate, and costs no
accuracy and no retrieval, each by its verdict. Among several it is the one that improves most of the six; then the
one that lowers them more on average; then the same by harm rates. A mitigation whose fit saw images that it is
judged on is never recommended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import polars as pl

from plumbline.metrics.paired.mitigations import IMPROVED, NO_EVIDENCE, WORSENED
from plumbline.report.finding import Finding
from plumbline.report.numbers import bare_p, confidence, count, p_value
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, reason_of
from plumbline.report.transfer import (
    COSTS,
    JUDGED,
    Tried,
    block_of,
    change,
    change_interval,
    detectable_change,
    is_share,
    place,
    row_words,
    tried,
)


def is_recommended(one: Tried) -> bool:
    """Return whether a mitigation passes the rule of this module."""
    costs = one.of(*COSTS, verdict=WORSENED)
    return bool(one.improved) and not one.worsened and not costs and not one.leaking


def recommended(candidates: Sequence[Tried]) -> Tried | None:
    """Return the mitigation to use, None where none passes; ties go to the first."""
    passing = [one for one in candidates if is_recommended(one)]
    return max(passing, key=_merit, default=None)


def _merit(one: Tried) -> tuple[float, ...]:
    merit: list[float] = []
    for rows in (one.improved_axes, one.improved_harms):
        merit += [len(rows), sum(abs(row["value"]) for row in rows) / max(1, len(rows))]
    return tuple(merit)


def advice(candidates: Sequence[Tried], reading: Reading) -> str:
    """Return in one sentence what to use for a checkpoint on a dataset, or that nothing tried can be recommended.

    Parameters
    ----------
    candidates : sequence of Tried
        What was tried on one checkpoint and dataset; at least one.
    """
    whose, best = f"{candidates[0].model} on {candidates[0].dataset}", recommended(candidates)
    if best is None:
        return f"For {whose} none of {len(candidates)} mitigations can be recommended: {why_none(candidates)}."
    helps = max(best.improved, key=lambda row: (row["verdict"] == IMPROVED, -(row["q"] or 0.0)))
    costs = "" if best.of(*COSTS) else "; what it costs was not measured"
    return (
        f"For {whose} use {best.name}: it {_changed(helps, reading)}; no evidence that it makes anything worse"
        f"{_detectable(_unclear(best))}{costs}."
    )


def _changed(row: Row, reading: Reading) -> str:
    falls = row["value"] < 0
    ends = (("value", "value"), ("ci_low", "ci_high"), ("ci_high", "ci_low"))
    size = {**row, **{name: -row[end] for name, end in ends if defined(row[end])}} if falls else row
    sure = f"{confidence(reading.confidence)} CI {change_interval(size)}; {p_value(row['q'], 'q')}"
    return f"{'lowers' if falls else 'raises'} {row_words(row)} by {change(size).lstrip('+')} ({sure})"


def foremost(rows: Sequence[Row], most: int) -> list[Row]:
    """Return the largest changes, of every unit and block in turn: a skew and a share are not comparable."""
    ranked = sorted(rows, key=lambda row: -abs(row["value"]))
    turns = Counter[tuple[bool, str | None]]()
    order = []
    for row in ranked:
        kind = (is_share(row), block_of(row))
        order.append((turns[kind], place(row), row))
        turns[kind] += 1
    return [row for _, _, row in sorted(order, key=lambda item: item[:2])[:most]]


def why_none(candidates: Sequence[Tried]) -> str:
    """Return why none of some mitigations is recommended, as a clause."""
    helping = [one for one in candidates if one.improved and not one.leaking]
    if helping:
        reasons: list[tuple[str, Callable[[Tried], bool]]] = [
            ("makes another worse", lambda one: bool(one.worsened)),
            ("costs accuracy or retrieval", lambda one: bool(one.of(*COSTS, verdict=WORSENED))),
        ]
        causes = [reason for reason, holds in reasons if any(holds(one) for one in helping)]
        what = "each one" if len(helping) > 1 else "the one"
        return f"{what} that improves a bias measure also {' or '.join(causes)}"
    judged = [row for one in candidates for row in one.of(*JUDGED)]
    if not judged:
        return "none was judged on the bias measures"
    n = max((row["n"] or 0 for row in judged), default=0)
    nothing = f"there is no evidence in {count(n)} images that one improves a bias measure"
    return nothing + _detectable([row for one in candidates for row in _unclear(one)])


def _unclear(one: Tried) -> list[Row]:
    """Return the bias measures that it may change or not."""
    return one.of(*JUDGED, verdict=NO_EVIDENCE)


def _detectable(rows: Sequence[Row]) -> str:
    """Return in brackets which change of the first of some rows without evidence would have been found."""
    known = [row for row in rows if detectable_change(row)][:1]
    return "".join(f" (detectable: {detectable_change(row)} in {row_words(row)})" for row in known)


# --- What mitigations do to each checkpoint, one finding a mitigation, model and dataset.

_BIAS = (*JUDGED, "trident")


def transfer_findings(transfer: pl.DataFrame | None, reading: Reading) -> list[Finding]:
    """Return what a table of bias transfer says; nothing of mitigations that leak, or without a table.

    Parameters
    ----------
    transfer : DataFrame or None
        In `plumbline.metrics.paired.mitigations.TRANSFER_SCHEMA`.
    """
    if transfer is None:
        return []
    cells = transfer.select("dataset", "model").unique().sort("dataset", "model").rows()
    candidates = [one for d, m in cells for one in tried(transfer, dataset=d, model=m, leaking=reading.leaking)]
    return [_finding(one) for one in candidates if one.rows and not one.leaking]


def _finding(one: Tried) -> Finding:
    better = one.of(*_BIAS, verdict=IMPROVED)
    worse = one.worsened + one.of("trident", verdict=WORSENED)
    costs = one.of(*COSTS, verdict=WORSENED)
    if worse and better:
        return _of(one, "cost", worse, f"{one.condition} helps in one place and harms in another")
    if worse:
        return _of(one, "cost", worse, f"Made worse by {one.condition}")
    if costs:
        return _of(one, "cost", costs, f"Cost of {one.condition}")
    if better:
        return _of(one, "gain", better, f"Improved by {one.condition}")
    return _nothing(one, f"{one.model} on {one.dataset}: {one.name}")


def _nothing(one: Tried, subject: str) -> Finding:
    known = [row for row in one.rows if defined(row["value"])]
    if not known:
        sentence = f"{subject}: every comparison is undefined: {reason_of(one.rows[0])}."
        return _of(one, "undefined", [one.rows[0]], f"undefined: what {one.condition} changes", sentence)
    n = max((row["n"] or 0 for row in known), default=0)
    sentence = (
        f"{subject} shows no evidence of a change in {len(known)} comparisons on up to {count(n)} images. This does "
        f"not show that it changes nothing{_detectable(known)}."
    )
    return _of(one, "none", known, f"no evidence of a change by {one.condition}", sentence)


def _of(one: Tried, tone: str, rows: list[Row], short: str, sentence: str = "") -> Finding:
    first = foremost(rows, 1)[0] if tone in ("cost", "gain") else rows[0]
    in_short = f"{one.model} on {one.dataset}: {short}, first {row_words(first)} ({change(first)})."
    return Finding(
        tone=tone,
        topic=("transfer", one.dataset, one.condition),
        model=one.model,
        dataset=one.dataset,
        short=short,
        sentence=sentence or in_short,
        value=first["value"] if defined(first["value"]) else float("nan"),
        value_text=change(first),
        interval_text=change_interval(first),
        q_text=bare_p(first["q"]),
        # Skews and shares have different units: what makes a finding strong is how many comparisons it is about.
        strength=float(len(rows)) if tone != "none" else 0.0,
    )
