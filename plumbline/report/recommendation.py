"""What to use for a checkpoint, and what it would make worse: one rule, and the sentences that it leads to.

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
from plumbline.mitigations.settings import METHODS
from plumbline.report.finding import Finding
from plumbline.report.numbers import MINUS, bare_p, count, number, points
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, reason_of
from plumbline.report.transfer import (
    COSTS,
    JUDGED,
    Tried,
    block_of,
    change,
    change_interval,
    is_share,
    place,
    row_words,
    stated,
    tried,
    undefined_rows,
)
from plumbline.report.vocabulary import listed

IN_NUMBERS = 2
"""How many changes a sentence tells in numbers; it counts the others."""


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


def advice(candidates: Sequence[Tried], reading: Reading) -> list[str]:
    """Return what to use for a checkpoint on a dataset, and then what each other mitigation did to it.

    Parameters
    ----------
    candidates : sequence of Tried
        What was tried on one checkpoint and dataset; at least one.

    Returns
    -------
    list of str
        Paragraphs: the answer, then one a mitigation that changes something, then those that change nothing.
    """
    chosen = recommended(candidates)
    where = f"{candidates[0].model} on {candidates[0].dataset}"
    if chosen:
        helped = f"For {where}, use {chosen.name}. It {changed(chosen.improved, reading.confidence, most=3)}."
        sentences = [" ".join([helped, _unworsened(chosen), *_beside(chosen, reading)]) + _takes(chosen)]
    else:
        sentences = [f"For {where}, no mitigation that was tried can be recommended: {why_none(candidates)}."]
    others = [one for one in candidates if one is not chosen]
    silent = [one for one in others if not _changes(one)]
    sentences += [_other(one, reading) for one in others if one not in silent]
    return sentences + ([_silence(silent)] if silent else [])


def changed(rows: Sequence[Row], level: float, *, most: int = IN_NUMBERS) -> str:
    """Return what falls and what rises as the predicate of a sentence, the foremost in numbers, the rest counted.

    Parameters
    ----------
    rows : sequence of Row
        At least one, all of one verdict: improved or worsened.
    level : float
        Coverage of the intervals.
    most : int
        How many are told in numbers.
    """
    leading = foremost(rows, most)
    falls, rises = ([r for r in leading if (r["value"] < 0) is down] for down in (True, False))
    verbs = (("lowers", falls), ("raises", rises))
    parts = [f"{verb} {listed([stated(row, level) for row in of_verb])}" for verb, of_verb in verbs if of_verb]
    if len(rows) > len(leading):
        verb = "improves" if rows[0]["verdict"] == IMPROVED else "worsens"
        parts.append(f"{verb} {count(len(rows) - len(leading))} more")
    return listed(parts)


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


def _changes(one: Tried) -> list[Row]:
    return [row for row in one.rows if row["verdict"] in (IMPROVED, WORSENED)]


def _probes(one: Tried, level: float) -> str:
    rows = one.of("trident")
    better, worse = (one.of("trident", verdict=v) for v in (IMPROVED, WORSENED))
    if not better and not worse:
        return ""
    sentence = f"On the Trident probes it improves {len(better)} and worsens {len(worse)} of {len(rows)} rates"
    return f"{sentence}, most of all {stated(foremost(worse, 1)[0], level)}." if worse else f"{sentence}."


def _unworsened(one: Tried) -> str:
    """Say what is not known to get worse, without calling it unchanged."""
    judged, costs = one.of(*JUDGED), one.of(*COSTS)
    sentence = f"There is no evidence that it makes any of the {len(judged)} bias measures worse"
    sentence += ", or that it costs accuracy or retrieval" if costs else "; what it costs was not measured"
    sentence += f"{_reach([*judged, *costs])}."
    if undefined := undefined_rows(one.rows):
        sentence += f" Nothing can be said of {count(len(undefined))} of its comparisons (undefined)."
    return sentence


def _reach(rows: Sequence[Row]) -> str:
    """Say how large a worsening the intervals of rows without evidence still allow, in each unit."""
    worst: dict[tuple[bool, str], tuple[float, str]] = {}
    for row in rows:
        end = row["ci_high"] if row["better"] == "lower" else row["ci_low"]
        if row["verdict"] == NO_EVIDENCE and defined(end) and (end > 0) == (row["better"] == "lower"):
            unit = (is_share(row), row["better"])
            worst[unit] = max(worst.get(unit, (0.0, "")), (abs(end), row_words(row)))
    allowed = [
        f"{('+' if better == 'lower' else MINUS)}{_size(end, share=share)} in {words}"
        for (share, better), (end, words) in worst.items()
    ]
    return f"; the intervals still allow {listed(allowed)}" if allowed else ""


def _size(value: float, *, share: bool) -> str:
    return points(value).lstrip("+") if share else number(value)


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
    return f"there is no evidence in {count(n)} images that one improves a bias measure"


def _other(one: Tried, reading: Reading) -> str:
    """Say what a mitigation that is not the chosen one does, good and bad in one sentence."""
    if one.leaking:
        return (
            f"{one.name} is shown for comparison only: images that it is judged on had a say in its fit, so that "
            f"it looks better than it is."
        )
    level, costs = reading.confidence, one.of(*COSTS, verdict=WORSENED)
    clause = ", but ".join(changed(rows, level) for rows in (one.improved, one.worsened) if rows)
    if costs:
        clause = f"{clause}, and it costs: it {changed(costs, level, most=1)}" if clause else changed(costs, level)
    sentences = [f"{one.name} {clause}."] if clause else []
    sentences += _beside(one, reading)
    if is_recommended(one):
        sentences.append("It passes the same rule and improves fewer of the six, or by less.")
    return " ".join(sentences) + _takes(one)


def _takes(one: Tried) -> str:
    return f" {METHODS[one.method].takes}." if one.method in METHODS else ""


def _beside(one: Tried, reading: Reading) -> list[str]:
    """Say what happens off the bias measures: on the probes, and to accuracy that rises."""
    level = reading.confidence
    if one.of(*JUDGED):
        sentences = [f"Readings disagree: it {changed(one.disputed, level)}."] if one.disputed else []
        sentences += [probes] if (probes := _probes(one, level)) else []
    else:
        better, worse = (one.of("trident", verdict=v) for v in (IMPROVED, WORSENED))
        parts = ([changed(better, level, most=1)] if better else []) + ([changed(worse, level)] if worse else [])
        sentences = [f"{one.name} is not judged on the bias measures, only on the Trident probes."]
        sentences += [f"There it {', but '.join(parts)}."] if parts else []
    gained = one.of(*COSTS, verdict=IMPROVED)
    return sentences + ([f"It {changed(gained, level)}."] if gained else [])


def _silence(silent: Sequence[Tried]) -> str:
    """Say of which mitigations there is no evidence, and what their intervals still allow."""
    names = listed([one.name for one in silent])
    rows = [row for one in silent for row in one.rows]
    if len(undefined_rows(rows)) == len(rows):
        return f"Of {names} nothing can be said: every comparison is undefined."
    they, s = ("they", "") if len(silent) > 1 else ("it", "s")
    sentence = f"There is no evidence that {names} change{s} anything. This does not show that {they} change{s} nothing"
    return f"{sentence}{_reach(rows)}."


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
    return [_finding(one, reading) for one in candidates if one.rows and not one.leaking]


def _finding(one: Tried, reading: Reading) -> Finding:
    better = one.of(*_BIAS, verdict=IMPROVED)
    worse = one.worsened + one.of("trident", verdict=WORSENED)
    costs = one.of(*COSTS, verdict=WORSENED)
    level, subject = reading.confidence, f"{one.model} on {one.dataset}: {one.name}"
    if worse:
        clause = ", but ".join(changed(rows, level) for rows in (better, worse) if rows)
        clause += f"; it also costs: it {changed(costs, level, most=1)}" if costs else ""
        short = (
            f"{one.condition} helps in one place and harms in another" if better else f"Made worse by {one.condition}"
        )
        return _of(one, "cost", worse, short, f"{subject} {clause}.")
    if costs:
        helped = f"{changed(better, level)}, but " if better else ""
        return _of(one, "cost", costs, f"Cost of {one.condition}", f"{subject} {helped}{changed(costs, level)}.")
    if better:
        clause = f"{subject} {changed(better, level)}; no evidence that it makes another of the comparisons worse."
        return _of(one, "gain", better, f"Improved by {one.condition}", clause)
    return _nothing(one, subject)


def _nothing(one: Tried, subject: str) -> Finding:
    known = [row for row in one.rows if defined(row["value"])]
    if not known:
        sentence = f"{subject}: every comparison is undefined: {reason_of(one.rows[0])}."
        return _of(one, "undefined", [one.rows[0]], f"undefined: what {one.condition} changes", sentence)
    n = max((row["n"] or 0 for row in known), default=0)
    sentence = (
        f"{subject} shows no evidence of a change in {len(known)} comparisons on up to {count(n)} images. This does "
        f"not show that it changes nothing."
    )
    return _of(one, "none", known, f"no evidence of a change by {one.condition}", sentence)


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
