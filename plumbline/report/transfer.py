"""Reading the table of bias transfer: what was tried on a checkpoint, and what that improves and worsens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import polars as pl

from plumbline.catalog.suites import TASK_EVENTS, TASKS, VARIANT_SUITES
from plumbline.metrics.paired.comparisons import SMOOTHED_SKEW, compared_skew
from plumbline.metrics.paired.mitigations import IMPROVED, UNDEFINED, WORSENED
from plumbline.mitigations.settings import METHODS, method_title
from plumbline.report.numbers import (
    EQUALS,
    NO_INTERVAL,
    agreeing_decimals,
    confidence,
    count,
    interval,
    number,
    p_value,
    percent,
    points,
)
from plumbline.report.rows import Row, defined
from plumbline.report.vocabulary import ATTRIBUTE_TITLES, attribute_title, event_title, is_composite, is_own_suite

SIX_AXES = tuple((attribute, *task) for attribute, task in product(("gender", "race"), TASK_EVENTS.items()))
"""Attribute, suite and event of the six contrastive metrics of the packaged suites."""


Axis = tuple[str | None, str | None, str | None]


@dataclass(frozen=True)
class Block:
    """Rows of one unit that stand together in figure and table.

    Attributes
    ----------
    name, title : str
        As code and as people say it.
    share : bool
        Whether values are shares of images, shown as percentages; else plain numbers.
    """

    name: str
    title: str
    share: bool


BLOCKS = (
    Block("axis", "Max skew", share=False),
    Block("harm", "Harm rate", share=True),
    Block("trident", "Trident probes", share=True),
    Block("accuracy", "Accuracy", share=True),
    Block("retrieval", "Retrieval", share=True),
)
JUDGED = ("axis", "harm")
"""The blocks by which a mitigation is recommended or not."""
COSTS = ("accuracy", "retrieval")

_ATTRIBUTES = (None, "gender", "race", "age_group", "gender_race")
_EVENTS = (*TASK_EVENTS.values(), "non_human", "mean_of_tasks", "negative", "neutral", "positive")
_METRICS = ("zero_shot_accuracy", "macro_accuracy", "probe_rate", "parity_difference")


@dataclass(frozen=True)
class Tried:
    """One mitigation, tried on one checkpoint and dataset.

    Attributes
    ----------
    condition, method : str
        The mitigation's id in the audit file, and one of `plumbline.mitigations.settings.METHODS`.
    rows : tuple of Row
        Its rows that are shown (`block_of`), in the order of the blocks.
    readings : tuple of Row
        Further readings of the axes: smoothed skews, parity differences, variants of the suites.
    leaking : bool
        Whether images that it is judged on had a say in its fit.
    """

    condition: str
    method: str
    model: str
    dataset: str
    rows: tuple[Row, ...]
    readings: tuple[Row, ...] = ()
    leaking: bool = False

    def of(self, *blocks: str, verdict: str | None = None) -> list[Row]:
        """Return the rows of some blocks, of one verdict where it is given."""
        return [r for r in self.rows if block_of(r) in blocks and verdict in (None, r["verdict"])]

    @property
    def name(self) -> str:
        """Return the mitigation for a sentence: its title, and its id where that says more."""
        title = method_title(self.method)
        return title if self.condition == self.method else f"{title} ({self.condition})"

    @property
    def gaps(self) -> list[Row]:
        """Return the rows of the gaps that it was judged by, by Max Skew."""
        return list(filter(is_gap, self.of("axis")))

    @property
    def improved(self) -> list[Row]:
        """Return the gaps that it improves by Max Skew, then the harm rates."""
        return self.improved_axes + self.improved_harms

    @property
    def improved_axes(self) -> list[Row]:
        """Return the rows of the gaps (`is_gap`) that it improves by Max Skew."""
        return [row for row in self.gaps if row["verdict"] == IMPROVED]

    @property
    def closed(self) -> list[Row]:
        """Return the gaps that it closes, by Max Skew or else by another reading."""
        return self.improved_axes + list(filter(is_gap, self.by_other_readings(IMPROVED)))

    @property
    def improved_harms(self) -> list[Row]:
        """Return the harm rates that it improves; the mean over the tasks is no further one."""
        return [r for r in self.of("harm", verdict=IMPROVED) if r["event"] != "mean_of_tasks"]

    @property
    def worsened(self) -> list[Row]:
        """Return the axes, whichever groups they compare, and harm rates that it makes worse.

        An axis is worse where any reading of it is, unless Max Skew says that it improves; of several readings it is
        Max Skew, else the surest. Which definition of it speaks, says `with_compared_skew`.
        """
        return self.of(*JUDGED, verdict=WORSENED) + self.by_other_readings(WORSENED)

    def by_other_readings(self, verdict: str) -> list[Row]:
        """Return the surest further reading of each axis that has a verdict by it, and none by Max Skew."""
        settled = {axis_of(row) for each in (IMPROVED, WORSENED) for row in self.of("axis", verdict=each)}
        return [row for row in self._surest_readings(verdict) if axis_of(row) not in settled]

    @property
    def disputed(self) -> list[Row]:
        """Return readings by which an axis gets worse that improves by Max Skew."""
        improved = {axis_of(row) for row in self.of("axis", verdict=IMPROVED)}
        return [row for row in self._surest_readings(WORSENED) if axis_of(row) in improved]

    def _surest_readings(self, verdict: str) -> list[Row]:
        """Return the surest further reading of each axis that has a verdict by it."""
        rows = [row for row in self.readings if row["verdict"] == verdict]
        surest = {axis_of(row): row for row in sorted(rows, key=lambda row: -row["q"])}
        return sorted(surest.values(), key=place)


def axis_of(row: Row) -> Axis:
    """Return the axis that a row reads: attribute, suite and event."""
    return row["attribute"], row["suite"], row["event"]


def is_gap(row: Row) -> bool:
    """Return whether an axis is one that a mitigation is recommended by.

    That is each of the six contrastive metrics, and what the audit adds itself: an own suite by any attribute, and an
    attribute of the dataset's own. Crossed attributes, whose parts are gaps already, and age are none: they may only
    get worse.
    """
    attribute, suite, _ = axis_of(row)
    own = is_own_suite(suite or "") or attribute not in ATTRIBUTE_TITLES
    return axis_of(row) in SIX_AXES or (own and not is_composite(attribute or ""))


def with_compared_skew(transfer: pl.DataFrame) -> pl.DataFrame:
    """Add `compared_skew`: which definition of Max Skew an axis is judged by, that without pairs left out."""
    by = ["condition", "model", "dataset", "kind", "suite", "attribute", "event"]
    return transfer.with_columns(compared_skew=compared_skew(by))


def block_of(row: Row) -> str | None:
    """Return the block of a row `with_compared_skew`; None for a further reading of an axis, which the list shows."""
    if row["suite"] in VARIANT_SUITES:
        return None
    if row["kind"] == "axis":
        return "axis" if row["metric"] == "max_skew" and row["definition"] == row["compared_skew"] else None
    if row["kind"] == "cost":
        return "retrieval" if row["metric"].startswith("retrieval") else "accuracy"
    return str(row["kind"])


def tried(transfer: pl.DataFrame, *, dataset: str, model: str, leaking: Sequence[str] = ()) -> list[Tried]:
    """Return what was tried on a checkpoint and dataset, in the order of the methods and then by id."""
    of_cell = transfer.filter(pl.col("dataset") == dataset, pl.col("model") == model)
    rows = with_compared_skew(of_cell).to_dicts()
    order = list(METHODS)
    ids = {(row["condition"], row["method"]) for row in rows}
    ranked = sorted(ids, key=lambda i: (order.index(i[1]) if i[1] in order else len(order), i[1], i[0]))
    candidates = []
    for condition, method in ranked:
        of_condition = [row for row in rows if (row["condition"], row["method"]) == (condition, method)]
        readings = tuple(row for row in of_condition if block_of(row) is None)
        shown = tuple(shown_rows(of_condition))
        candidates.append(Tried(condition, method, model, dataset, shown, readings, condition in leaking))
    return candidates


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that belong to a block, in the order in which they are shown."""
    return sorted((row for row in rows if block_of(row)), key=place)


def place(row: Row) -> tuple[int | str, ...]:
    """Return what sorts rows: block, groups, event, metric, definition; the same for every mitigation."""
    blocks = [block.name for block in BLOCKS]
    block = block_of(row)
    return (
        blocks.index(block) if block in blocks else len(blocks),
        *_index(_METRICS, row["metric"]),
        *_index(_ATTRIBUTES, row["attribute"] if row["kind"] == "axis" else None),
        *_index(_EVENTS, row["event"]),
        row["suite"] or "",
        row["definition"],
        row["attribute"] or "",
    )


def _index(order: Sequence[str | None], name: str | None) -> tuple[int, str]:
    return (order.index(name), "") if name in order else (len(order), name or "")


def undefined_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of which nothing can be said."""
    return [row for row in rows if row["verdict"] == UNDEFINED or not defined(row["value"])]


# --- A row of bias transfer in words: what it is about, and by how much that changes.

USUAL_SUITES = (*TASKS, "outcomes", "trident", "trident_mixed", "retrieval")
VARIANTS = {"crime_pooled": "pooled"}


def is_share(row: Row) -> bool:
    """Return whether a row's values are shares of images: all but skews are."""
    return bool(row["metric"] != "max_skew")


def row_title(row: Row) -> str:
    """Return what a row is about, for an axis or table in which its block is named."""
    match row["metric"]:
        case "probe_rate":
            return f"taken for a {row['event']} probe"
        case "parity_difference" if row["kind"] == "trident":
            return f"{_classes(row)} gap, {row['event']}"
        case "zero_shot_accuracy":
            return f"zero-shot, {_spaced(row['definition'])}"
        case "macro_accuracy":
            return "with a probe, macro"
        case "retrieval_recall":
            return _retrieval("recall", row)
        case "retrieval_r_precision":
            return _retrieval("R-precision", row)
    if row["kind"] == "axis":
        smoothed = ", smoothed" if row["definition"] == SMOOTHED_SKEW else ""
        return f"{attribute_title(row['attribute'] or 'all images')}: {_short(row)}{smoothed}"
    return _short(row)


def row_words(row: Row) -> str:
    """Return what a row is about as the object of a sentence."""
    event = event_title(row["event"] or "", row["suite"])
    match row["metric"]:
        case "max_skew":
            smoothed = "smoothed " if row["definition"] == SMOOTHED_SKEW else ""
            return f"{smoothed}{attribute_title(row['attribute'] or '')} skew in {_task(row)}"
        case "harm_rate" if row["event"] == "mean_of_tasks":
            return "the mean harm rate of the three tasks"
        case "harm_rate":
            return f"the share of images given {_task(row)}"
        case "probe_rate":
            return f"the share of images taken for a {event} probe word"
        case "parity_difference" if row["kind"] == "trident":
            return f"the gap between {attribute_title(row['attribute'] or '')} classes for {event} probe words"
        case "zero_shot_accuracy":
            return f"zero-shot accuracy ({_spaced(row['definition'])})"
        case "macro_accuracy":
            return "macro accuracy with a probe among the labels"
        case "retrieval_recall" | "retrieval_r_precision":
            return row_title(row)
    return f"the {_spaced(row['metric'])} by {attribute_title(row['attribute'] or 'image')} in {_task(row)}"


def change(row: Row) -> str:
    """Return the difference after - before, signed, in the unit of its row."""
    if not defined(row["value"]):
        return "undefined"
    if is_share(row):
        return points(row["value"])
    return f"{'+' if row['value'] > 0 else ''}{number(row['value'])}"


def detectable_change(row: Row) -> str:
    """Return which difference, up or down, would have been found, in the unit of its row; empty where unknown."""
    least = row.get("smallest_detectable")
    return change({**row, "value": least}).lstrip("+") if defined(least) else ""


def change_interval(row: Row) -> str:
    """Return the interval of the difference in the unit of its row."""
    return _ends(row["ci_low"], row["ci_high"], share=is_share(row))


def both_values(row: Row, *, decimals: int | None = None) -> str:
    """Return `before → after`, with so many `decimals` where they are given."""
    values = (row["value_before"], row["value_after"])
    before, after = (
        percent(value, decimals=decimals) if is_share(row) else number(value, decimals=decimals) for value in values
    )
    return f"{before} → {after}"


def stated(row: Row, level: float) -> str:
    """Return what changed and by how much: `gender skew in crime labels by 0.42 (95% CI 0.30–0.55; …)`."""
    falls = row["value"] < 0
    low, high = (row["ci_low"], row["ci_high"])
    if falls and defined(low) and defined(high):
        low, high = -high, -low
    decimals = _agreeing(row)
    apart = abs(row["value"])
    size = points(apart, decimals=decimals).lstrip("+") if is_share(row) else number(apart, decimals=decimals)
    ends = _ends(low, high, share=is_share(row))
    parts = [f"{confidence(level)} CI {ends}" if ends != NO_INTERVAL else ends]
    parts += [p_value(row["q"], "q"), both_values(row, decimals=decimals), f"n{EQUALS}{count(row['n'])}"]
    return f"{row_words(row)} by {size} ({'; '.join(parts)})"


def _agreeing(row: Row) -> int | None:
    """Return with how many decimals a change and the two values that it is of agree; None without both values."""
    values = (row["value_before"], row["value_after"], row["value"])
    if not all(map(defined, values)):
        return None
    return agreeing_decimals(*values, share=is_share(row))


def _ends(low: float | None, high: float | None, *, share: bool) -> str:
    return interval(low, high, scale=100, unit=" points") if share else interval(low, high)


def _classes(row: Row) -> str:
    return "class × gender" if row["suite"] == "trident_mixed" else "class"


def _task(row: Row) -> str:
    whole = "the " if row["event"] == "mean_of_tasks" else ""
    return f"{whole}{event_title(row['event'] or '–', row['suite'])}{_variant(row)}"


def _short(row: Row) -> str:
    return event_title(row["event"] or row["metric"], row["suite"]).removesuffix(" words") + _variant(row)


def _variant(row: Row) -> str:
    """Name the suite where another than the usual one asks for the event."""
    usual = row["suite"] in (None, *USUAL_SUITES) or is_own_suite(row["suite"])  # which its title names already
    return "" if usual else f" ({VARIANTS.get(row['suite'], _spaced(row['suite']))})"


_OF_LABELS = "sentences made of the labels"
"""What the reason `captions_of_labels` says."""


def is_of_labels(row: Row) -> bool:
    """Return whether a row of retrieval asks for sentences made of labels, since the images have no captions."""
    return _OF_LABELS in (row["reason"] or "")


def _retrieval(measure: str, row: Row) -> str:
    direction, at, depth = row["definition"].partition("@")
    direction = _spaced(direction)
    return f"{measure}{at}{depth}, {direction.replace('text', 'label sentence') if is_of_labels(row) else direction}"


def _spaced(text: str) -> str:
    return text.replace("_", " ")
