"""What to use for a checkpoint, and what it would make worse: one rule, and the sentence that it leads to.

A mitigation is recommended where it improves at least one gap (`plumbline.report.transfer.is_gap`) or a harm rate,
worsens no axis (other groups and the mean of the tasks included, by whichever reading) and no harm rate, and costs no
accuracy and no retrieval, each by its verdict. One that closes no gap between groups, by whichever reading, is
recommended only where there are enough images to see one become twice as wide. Among several it is the one that
closes most gaps; then the one that lowers them more on average; then the same by harm rates. A mitigation whose fit saw
images that it is judged on is never recommended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plumbline.metrics.paired.mitigations import NO_EVIDENCE, WORSENED
from plumbline.report.numbers import confidence, count, p_value
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, defined, or_nan
from plumbline.report.transfer import (
    COSTS,
    JUDGED,
    Tried,
    block_of,
    change,
    change_interval,
    detectable_change,
    is_gap,
    is_of_labels,
    is_share,
    place,
    row_words,
)
from plumbline.report.vocabulary import listed

_MOST_NAMED = 3
"""Of what a mitigation changes, in a sentence."""


def is_recommended(one: Tried) -> bool:
    """Return whether a mitigation passes the rule of this module."""
    return _does_no_harm(one) and not _unseen(one)


def _does_no_harm(one: Tried) -> bool:
    """Return whether it improves something, and by no verdict makes anything worse."""
    costs = one.of(*COSTS, verdict=WORSENED)
    return bool(one.improved) and not one.worsened and not costs and not one.leaking


def _unseen(one: Tried) -> list[Row]:
    """Return the gaps that it might double without anybody seeing it, where it closes none."""
    if one.closed:
        return []
    gaps = filter(is_gap, one.of("axis", verdict=NO_EVIDENCE))
    return [row for row in gaps if not or_nan(row["smallest_detectable"]) <= abs(or_nan(row["value_before"]))]


def recommended(candidates: Sequence[Tried]) -> Tried | None:
    """Return the mitigation to use, None where none passes; ties go to the first."""
    passing = [one for one in candidates if is_recommended(one)]
    return max(passing, key=_merit, default=None)


def _merit(one: Tried) -> tuple[float, ...]:
    merit: list[float] = []
    for rows in (one.closed, one.improved_harms):
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
        which = "the one mitigation" if len(candidates) == 1 else f"none of {len(candidates)} mitigations"
        can = "cannot" if len(candidates) == 1 else "can"
        return f"For {whose} {which} {can} be recommended: {why_none(candidates)}."
    helps = max(best.closed or best.improved, key=lambda row: -(row["q"] or 0.0))
    no_gap = "" if best.closed else "; no evidence that it closes a gap between groups"
    costs = "" if best.of(*COSTS) else "; what it costs was not measured"
    return (
        f"For {whose} use {best.name}: it {_changed(helps, reading)}{no_gap}; no evidence that it makes anything "
        f"worse{_detectable(_unclear(best))}{costs}."
    )


def first_to_try(model: str, others: Sequence[Sequence[Tried]]) -> str:
    """Return in one sentence which mitigation to try first on a checkpoint where none was tried.

    Of those that are recommended on another checkpoint and close a gap between groups there, it is the one that would
    be recommended among them all; where there is none, no mitigation is named.
    """
    every = [one for candidates in others for one in candidates]
    if not any(one.improved and not one.leaking for one in every):
        return f"Try mitigations on {model}; none was tried."
    first = recommended([one for one in every if one.closed])
    if first is None:
        return (
            f"No mitigation was tried on {model}; on other models none was seen to close a gap without a loss, so that "
            "none can be suggested. What each lowers and raises: see “What helps, at what cost, and what it makes "
            "worse”."
        )
    better = [
        *_counted(len(first.closed), f"of {len(first.gaps)} gap{'' if len(first.gaps) == 1 else 's'} between groups"),
        *_counted(len(first.improved_harms), f"harm rate{'' if len(first.improved_harms) == 1 else 's'}"),
    ]
    return (
        f"No mitigation was tried on {model}. Try first {first.name}: on {first.model} ({first.dataset}) it lowers "
        f"{listed(better)}; no evidence that it makes anything worse."
    )


def _counted(many: int, what: str) -> list[str]:
    return [f"{many} {what}"] if many else []


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
        causes = ["makes another worse"] if any(one.worsened for one in helping) else []
        costs = [row for one in helping for row in one.of(*COSTS, verdict=WORSENED)]
        causes += [f"costs {' or '.join(dict.fromkeys(sorted(map(_cost, costs))))}"] if costs else []
        if any(_does_no_harm(one) for one in helping):
            blind = next(one for one in helping if _does_no_harm(one))
            n, unseen = max((row["n"] or 0 for row in blind.of(*JUDGED)), default=0), _detectable(_unseen(blind))
            return (
                f"{blind.name} improves {listed([row_words(row) for row in blind.improved[:_MOST_NAMED]])}, but "
                f"{count(n)} images are too few to see whether it widens a gap between groups{unseen}"
            )
        what = "each one" if len(helping) > 1 else "the one"
        return f"{what} that improves a bias measure also {' or '.join(causes)}"
    judged = [row for one in candidates for row in one.of(*JUDGED)]
    if not judged:
        return "none was judged on the bias measures"
    n = max((row["n"] or 0 for row in judged), default=0)
    nothing = f"there is no evidence in {count(n)} images that one improves a bias measure"
    nothing += _detectable([row for one in candidates for row in _unclear(one)])
    harmful = [one for one in candidates if one.worsened and not one.leaking]
    if not harmful:
        return nothing
    one = harmful[0]
    more = len(harmful) - 1
    others = f", {count(more)} more make{'s' * (more == 1)} something worse too" if more else ""
    return f"{nothing}; {one.name} makes {row_words(foremost(one.worsened, 1)[0])} worse{others}"


def _cost(row: Row) -> str:
    """Return what a row of a cost is about."""
    of_labels = " by sentences of the labels, which a mitigation may be meant to blur" if is_of_labels(row) else ""
    return f"retrieval{of_labels}" if block_of(row) == "retrieval" else "accuracy"


def _unclear(one: Tried) -> list[Row]:
    """Return the bias measures that it may change or not."""
    return one.of(*JUDGED, verdict=NO_EVIDENCE)


def _detectable(rows: Sequence[Row]) -> str:
    """Return in brackets the largest change of some rows without evidence that might have been missed.

    Skews come first: a skew and a share are not comparable, and a skew is what gaps are told by.
    """
    known = [row for row in rows if detectable_change(row)]
    largest = sorted(known, key=lambda row: (is_share(row), -or_nan(row["smallest_detectable"])))[:1]
    return "".join(f" (detectable: {detectable_change(row)} in {row_words(row)})" for row in largest)
