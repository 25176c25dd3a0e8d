"""Reading the table of bias transfer: what each row is about in words, and what was tried on a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import polars as pl

from plumbline.metrics.transfer_schema import IMPROVED, UNDEFINED, WORSENED
from plumbline.report.figures.outcomes import VARIANT_SUITES
from plumbline.report.mitigation_words import METHOD_WORDS, method_title
from plumbline.report.numbers import EQUALS, confidence, count, interval, number, p_value, percent, points
from plumbline.report.rows import Row, defined
from plumbline.report.vocabulary import attribute_title, event_title

EVENTS = ("crime", "negative_communion", "negative_agency")
SIX_AXES = tuple(product(("gender", "race"), EVENTS))
"""Attribute and event of the six contrastive metrics."""


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
_EVENTS = (*EVENTS, "non_human", "mean_of_tasks", "negative", "neutral", "positive")
_METRICS = ("zero_shot_accuracy", "macro_accuracy", "probe_rate", "parity_difference")


@dataclass(frozen=True)
class Tried:
    """One mitigation, tried on one checkpoint and dataset.

    Attributes
    ----------
    condition, method : str
        The mitigation's id in the audit file, and one of `plumbline.mitigation.methods.METHODS`.
    rows : tuple of Row
        Its rows that are shown (`block_of`), in the order of the blocks.
    leaking : bool
        Whether images that it is judged on had a say in its fit.
    """

    condition: str
    method: str
    model: str
    dataset: str
    rows: tuple[Row, ...]
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
    def improved(self) -> list[Row]:
        """Return the six contrastive metrics that it improves, then the harm rates."""
        return self.improved_axes + self.of("harm", verdict=IMPROVED)

    @property
    def improved_axes(self) -> list[Row]:
        """Return the rows of the six contrastive metrics that it improves."""
        return [r for r in self.of("axis", verdict=IMPROVED) if (r["attribute"], r["event"]) in SIX_AXES]

    @property
    def worsened(self) -> list[Row]:
        """Return the axes, whichever groups they compare, and harm rates that it makes worse."""
        return self.of(*JUDGED, verdict=WORSENED)


def block_of(row: Row) -> str | None:
    """Return the block of a row; None for a further reading of an axis, which only the list shows."""
    if row["suite"] in VARIANT_SUITES:
        return None
    if row["kind"] == "axis":
        main = row["metric"] == "max_skew" and row["definition"] == "mean_over_pairs"
        return "axis" if main else None
    if row["kind"] == "cost":
        return "retrieval" if row["metric"].startswith("retrieval") else "accuracy"
    return str(row["kind"])


def is_share(row: Row) -> bool:
    """Return whether a row's values are shares of images: all but skews are."""
    return bool(row["metric"] != "max_skew")


def tried(transfer: pl.DataFrame, *, dataset: str, model: str, leaking: Sequence[str] = ()) -> list[Tried]:
    """Return what was tried on a checkpoint and dataset, in the order of the methods and then by id."""
    rows = transfer.filter(pl.col("dataset") == dataset, pl.col("model") == model).to_dicts()
    order = list(METHOD_WORDS)
    ids = {(row["condition"], row["method"]) for row in rows}
    ranked = sorted(ids, key=lambda i: (order.index(i[1]) if i[1] in order else len(order), i[1], i[0]))
    return [
        Tried(
            condition=condition,
            method=method,
            model=model,
            dataset=dataset,
            rows=tuple(shown_rows([r for r in rows if (r["condition"], r["method"]) == (condition, method)])),
            leaking=condition in leaking,
        )
        for condition, method in ranked
    ]


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


def row_title(row: Row) -> str:
    """Return what a row is about, for an axis or table in which its block is named."""
    mixed = "" if row["suite"] in ("trident", None) else f", {row['suite'].replace('_', ' ')}"
    match row["metric"]:
        case "probe_rate":
            return f"taken for a {row['event']} probe{mixed}"
        case "parity_difference" if row["kind"] == "trident":
            return f"gap between classes, {row['event']}{mixed}"
        case "zero_shot_accuracy":
            return f"zero-shot, {_spaced(row['definition'])}"
        case "macro_accuracy":
            return f"with a probe, macro{mixed if row['suite'] == 'trident_mixed' else ''}"
        case "retrieval_recall":
            return _retrieval("recall", row["definition"])
        case "retrieval_r_precision":
            return _retrieval("R-precision", row["definition"])
    if row["kind"] == "axis":
        return f"{attribute_title(row['attribute'] or 'all images')}: {_short(row)}"
    return _short(row)


def row_words(row: Row) -> str:
    """Return what a row is about as the object of a sentence."""
    event = event_title(row["event"] or "")
    match row["metric"]:
        case "max_skew":
            whole = "the " if row["event"] == "mean_of_tasks" else ""
            return f"{attribute_title(row['attribute'] or '')} skew in {whole}{event}"
        case "harm_rate":
            return f"the share of images given {event}"
        case "probe_rate":
            return f"the share of images taken for a {event} probe word"
        case "parity_difference" if row["kind"] == "trident":
            return (
                f"the gap between {attribute_title(row['attribute'] or '')} classes for {event} probe words"
            )
        case "zero_shot_accuracy":
            return f"zero-shot accuracy ({_spaced(row['definition'])})"
        case "macro_accuracy":
            return "macro accuracy with a probe among the labels"
        case "retrieval_recall" | "retrieval_r_precision":
            return row_title(row)
    return f"{attribute_title(row['attribute'] or '')} {_spaced(row['metric'])} in {event}".strip()


def change(row: Row) -> str:
    """Return the difference after - before, signed, in the unit of its row."""
    if not defined(row["value"]):
        return "undefined"
    if is_share(row):
        return points(row["value"])
    return f"{'+' if row['value'] > 0 else ''}{number(row['value'])}"


def change_interval(row: Row) -> str:
    """Return the interval of the difference in the unit of its row."""
    return _ends(row["ci_low"], row["ci_high"], share=is_share(row))


def both_values(row: Row) -> str:
    """Return `before → after`."""
    shown = percent if is_share(row) else number
    return f"{shown(row['value_before'])} → {shown(row['value_after'])}"


def stated(row: Row, level: float) -> str:
    """Return what changed and by how much: `gender skew in crime labels by 0.42 (95% CI 0.30–0.55; …)`."""
    falls = row["value"] < 0
    low, high = (row["ci_low"], row["ci_high"])
    if falls and defined(low) and defined(high):
        low, high = -high, -low
    size = points(abs(row["value"])).lstrip("+") if is_share(row) else number(abs(row["value"]))
    ends = _ends(low, high, share=is_share(row))
    parts = [f"{confidence(level)} CI {ends}" if ends != "no interval" else ends]
    parts += [p_value(row["q"], "q"), both_values(row), f"n{EQUALS}{count(row['n'])}"]
    return f"{row_words(row)} by {size} ({'; '.join(parts)})"


def undefined_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of which nothing can be said."""
    return [row for row in rows if row["verdict"] == UNDEFINED or not defined(row["value"])]


def _ends(low: float | None, high: float | None, *, share: bool) -> str:
    return interval(low, high, scale=100, unit=" points") if share else interval(low, high)


def _short(row: Row) -> str:
    return event_title(row["event"] or row["metric"]).removesuffix(" words")


def _retrieval(measure: str, definition: str) -> str:
    direction, at, depth = definition.partition("@")
    return f"{measure}{at}{depth}, {_spaced(direction)}"


def _spaced(text: str) -> str:
    return text.replace("_", " ")
