"""What changed between two audits or checkpoints, as a page and as a section of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from plumbline.language.registry import LANGUAGE_METRICS
from plumbline.metrics.paired.comparisons import SMOOTHED_SKEW
from plumbline.metrics.registry import METRICS
from plumbline.provenance.diff import (
    APPEARED,
    BETTER,
    INDEPENDENT,
    NEITHER,
    ONE_SIDE,
    PAIRED,
    REGRESSED,
    REGRESSED_UNTESTED,
    UNSURE,
    VANISHED,
    WORSE,
    WORSE_UNTESTED,
)
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.dots import Dot, Rows, Unit, dots
from plumbline.report.listings import Listing
from plumbline.report.numbers import agreeing_decimals, bare_p, count, interval, number, percent, points, with_interval
from plumbline.report.rows import Row
from plumbline.report.vocabulary import attribute_title, event_title, group_title, suite_title

LONGEST = 40
"""Rows of a listing; a table of the lake holds all of them."""
SHOWN_FLIPS = 12
TITLES = {
    REGRESSED: "Worse by more than is allowed",
    REGRESSED_UNTESTED: "Worse by more than is allowed, but not tested",
    WORSE: "Worse, within what is allowed or without a limit",
    WORSE_UNTESTED: "Worse, within what is allowed or without a limit, but not tested",
    BETTER: "Better",
    NEITHER: "Changed, not clearly for the better or the worse",
    APPEARED: "Appeared: undefined or not asked before",
    VANISHED: "Vanished: undefined or no longer asked",
}
TITLE_OF_UNSURE = "No evidence of a change, the smallest q first"
MOST_UNSURE = 10
_UNITS = {"share": "shares", "number": "other numbers"}
_RATIOS = ("impact_ratio", "bias_size_elbow", "confound_r_squared", "text_axis_share")
_SHARES = frozenset(
    {name for name, traits in METRICS.items() if traits.bounds == (0, 1) and name not in _RATIOS}
    | {name for name, traits in LANGUAGE_METRICS.items() if (traits.unit or "").split(" of ")[0] == "share"}
    | {"zero_shot_accuracy", "retrieval_recall", "retrieval_r_precision"}
)
"""Metrics that are written in percent, their changes in points."""


class Preview(NamedTuple):
    """The `data:` address of a small picture of an image, or why there is none."""

    source: str | None
    missing: str | None


@dataclass(frozen=True)
class Changes:
    """Two sides and how they differ.

    Attributes
    ----------
    old, new : str
        What each side is called.
    differences, flips : DataFrame
        As of `plumbline.provenance.diff.judged`, and in `FLIP_SCHEMA`.
    causes : mapping of str to sequence of str
        `dataset|model` -> what changed, such as `the checkpoint`.
    absent : sequence of str
        What could not be compared as it should, with the reason; it may have several lines.
    not_compared : sequence of str
        What could not be compared at all, with the reason, such as `crime on faces|clip, since its prompts changed`.
    previews : mapping of str to Preview
        By image id.
    """

    old: str
    new: str
    differences: pl.DataFrame
    flips: pl.DataFrame
    causes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    absent: Sequence[str] = ()
    not_compared: Sequence[str] = ()
    previews: Mapping[str, Preview] = field(default_factory=dict)

    @property
    def regressed(self) -> int:
        """Return how many numbers got worse by more than is allowed."""
        return self._of(REGRESSED).height

    @property
    def state(self) -> str:
        """Return `worse`, `unknown` where nothing is but something was not compared or not tested, or `clear`."""
        if self.regressed:
            return "worse"
        return "unknown" if self.not_compared or self._of(REGRESSED_UNTESTED).height else "clear"

    @property
    def summary(self) -> str:
        """Return what got worse and what got better, in words."""
        counts = {verdict: self._of(verdict).height for verdict in TITLES}
        compared = self.differences["compared"].is_in([PAIRED, INDEPENDENT]).any()
        if self.regressed:
            row = self._of(REGRESSED).row(0, named=True)
            before, after, change = change_texts(row)
            example = f"{change_title(row)} on {row['dataset']}, {before} → {after} ({change})"
            which = "" if self.regressed == 1 else "the first is "
            first = f"{_numbers(self.regressed)} worse than before by more than is allowed: {which}{example}."
        elif self.differences.is_empty() and not self.not_compared:
            return "Every number is the same."
        elif self.state == "unknown":
            which = "compared" if self.not_compared else "tested"
            first = f"Nothing that was {which} is worse than before by more than is allowed." if compared else ""
        else:
            first = "Nothing is worse than before by more than is allowed."
        sentences = [first] if first else []
        within, better = counts[WORSE], counts[BETTER]
        for untested, what in (
            (counts[REGRESSED_UNTESTED], "worse by more than is allowed"),
            (counts[WORSE_UNTESTED], "worse within that, or of a metric without a limit"),
        ):
            if untested:
                sentences.append(f"{_numbers(untested)} {what}, but could not be tested, for want of an interval.")
        if within:
            sentences.append(f"{_numbers(within)} worse within that, or of a metric without a limit.")
        if better:
            sentences.append(f"{_numbers(better)} better.")
        told = (REGRESSED, REGRESSED_UNTESTED, WORSE, WORSE_UNTESTED, BETTER, NEITHER)
        if not any(counts[verdict] for verdict in told) and compared:
            changed = self.differences.filter(pl.col("value").is_finite())["value"]
            same = changed.len() > 0 and bool((changed == 0).all())
            sentences.append(
                "Every number that was compared is the same."
                if same
                else "There is no evidence that any number changed." + self._would_show()
            )
        return " ".join(sentences) or "No number could be compared."

    def _would_show(self) -> str:
        """Say which change of the first number that was compared would have been found; nothing where unknown."""
        known = (
            self.differences.filter(pl.col("smallest_detectable").is_finite(), condition="before", compared=PAIRED)
            .head(1)
            .to_dicts()
        )
        if not known:
            return ""
        least = known[0]["smallest_detectable"]
        size = points(least).lstrip("+") if known[0]["metric"] in _SHARES else number(least)
        return f" Four of five such comparisons would have found a change of {size} in {change_title(known[0])}."

    @property
    def how(self) -> str:
        """Return how numbers were compared, in words; empty where no change is told."""
        evident = self.differences.filter(pl.col("verdict").is_in([REGRESSED, WORSE, BETTER, NEITHER]))
        words = [
            sentence
            for compared, sentence in (
                (PAIRED, "Paired: on the same images or sets."),
                (INDEPENDENT, "As if independent: from the intervals of both sides, which is rather too wide."),
            )
            if (evident["compared"] == compared).any()
        ]
        return " ".join(["The change is after minus before, with its interval.", *words]) if words else ""

    @property
    def listings(self) -> list[tuple[str, Listing]]:
        """Return what changed, with titles: first what got worse, last what shows no evidence of a change."""
        by_verdict = [(verdict, self._of(verdict)) for verdict in TITLES]
        listings = [
            (TITLES[verdict], _one_sided(rows) if verdict in (APPEARED, VANISHED) else _listing(rows))
            for verdict, rows in by_verdict
            if rows.height
        ]
        unsure = self._of(UNSURE).sort("q", "p", nulls_last=True, maintain_order=True)
        return [*listings, (TITLE_OF_UNSURE, _listing(unsure, most=MOST_UNSURE))] if unsure.height else listings

    @property
    def pictures(self) -> list[Chart]:
        """Return charts of what changed with evidence: of shares, and of all other numbers."""
        by_verdict = {TITLES[verdict]: self._of(verdict).to_dicts() for verdict in (REGRESSED, WORSE, BETTER, NEITHER)}
        charts = []
        worse = self.differences.filter(pl.col("verdict").is_in([REGRESSED, WORSE]))["metric"]
        units: tuple[Unit, ...] = ("share", "number")
        # That in which something got worse stands first.
        for unit in sorted(units, key=lambda unit: not (worse.is_in(list(_SHARES)) == (unit == "share")).any()):
            rows = {
                heading: [_drawn(row) for row in rows if (row["metric"] in _SHARES) == (unit == "share")]
                for heading, rows in by_verdict.items()
            }
            charts.append(drawn_changes(rows, _UNITS, unit=unit))
        return [chart for chart in charts if chart is not None]

    def _of(self, verdict: str) -> pl.DataFrame:
        return self.differences.filter(pl.col("verdict") == verdict)

    @property
    def shown_flips(self) -> list[Row]:
        """Return the flips that are shown: of every cell and suite in turn, the widest margin first."""
        ranked = self.flips.with_columns(
            rank=pl.col("margin").rank("ordinal", descending=True).over("dataset", "model_new", "suite")
        )
        return ranked.sort("rank", "dataset", "model_new", "suite").head(SHOWN_FLIPS).to_dicts()

    @property
    def reasons(self) -> Listing:
        """List where the changes of each cell come from."""
        rows = [(where, ", ".join(causes)) for where, causes in self.causes.items()]
        return Listing(("Cell", "What changed"), rows)

    @property
    def flipped(self) -> Listing:
        """Count the images that flipped, by cell, suite and categories."""
        counted = (
            self.flips.group_by("dataset", "model_new", "suite", "category_old", "category_new")
            .len()
            .sort("len", "dataset", "model_new", "suite", "category_old", descending=[True, *[False] * 4])
        )
        rows = [
            (
                row["dataset"],
                row["model_new"],
                row["suite"],
                f"{row['category_old']} → {row['category_new']}".replace("_", " "),
                count(row["len"]),
            )
            for row in counted.head(LONGEST).to_dicts()
        ]
        return Listing(("Dataset", "Model", "Suite", "From → to", "Images"), rows, frozenset({4}), _cut(counted.height))


def _listing(chosen: pl.DataFrame, *, most: int = LONGEST) -> Listing:
    named = _names_models(chosen)
    rows = [
        (
            change_title(row),
            *([row["model_new"]] if named else []),
            row["dataset"],
            *change_texts(row),
            "–" if row["q"] is None else bare_p(row["q"]),
            row["compared"] if row["q"] is not None else "not tested",
        )
        for row in chosen.head(most).to_dicts()
    ]
    heads = ("What", *_model_head(named), "Dataset", "Before", "After", "Change [interval]", "q", "Compared")
    return Listing(heads, rows, frozenset(range(2 + named, 6 + named)), _cut(chosen.height, most))


def _one_sided(chosen: pl.DataFrame) -> Listing:
    """List numbers that one side lacks by metric, with how many they are and the reason that most of them have."""
    named = _names_models(chosen)
    of = ["metric", "suite", "model_new", "dataset"]
    reasons = pl.when(pl.col("compared") != ONE_SIDE).then("reason")
    counted = chosen.group_by(of, maintain_order=True).agg(
        pl.len(), reasons.drop_nulls().mode(maintain_order=True).first().alias("why")
    )
    counted = counted.sort("len", *of, descending=[True, *[False] * len(of)], nulls_last=True)
    rows = [
        (
            row["metric"].replace("_", " ") + (f" ({row['suite']})" if row["suite"] else ""),
            *([row["model_new"]] if named else []),
            row["dataset"],
            count(row["len"]),
            row["why"] or "not in the other",
        )
        for row in counted.head(LONGEST).to_dicts()
    ]
    heads = ("What", *_model_head(named), "Dataset", "Numbers", "Why")
    return Listing(heads, rows, frozenset({2 + named}), _cut(counted.height))


def _names_models(chosen: pl.DataFrame) -> bool:
    """Return whether rows say which model they are of: two checkpoints are named above all of them."""
    return bool((chosen["model_old"] == chosen["model_new"]).any())


def _model_head(named: bool) -> tuple[str, ...]:
    return ("Model",) if named else ()


def _numbers(many: int) -> str:
    return f"{count(many)} number{' is' if many == 1 else 's are'}"


def _drawn(row: Row) -> Row:
    names = [] if row["model_old"] != row["model_new"] else [row["model_new"]]
    what = ", ".join([change_title(row), *names, row["dataset"]])
    return row | {"what": what} | change_texts(row)._asdict()


class ChangeTexts(NamedTuple):
    """A number before and after, and the change with its interval, in words that add up."""

    old: str
    new: str
    change: str


def change_texts(row: Row) -> ChangeTexts:
    """Return old, new and new - old with its interval, a share in percent and points: `+10 points [6–19]`."""
    old, new, change = row["value_old"], row["value_new"], row["value"]
    is_share = row["metric"] in _SHARES
    decimals = agreeing_decimals(old, new, change, share=is_share)
    if is_share:
        written = points(change, decimals=decimals), interval(row["ci_low"], row["ci_high"], scale=100)
        return ChangeTexts(percent(old, decimals=decimals), percent(new, decimals=decimals), with_interval(*written))
    signed = ("+" if change > 0 else "") + number(change, decimals=decimals)
    ends = interval(row["ci_low"], row["ci_high"])
    return ChangeTexts(number(old, decimals=decimals), number(new, decimals=decimals), with_interval(signed, ends))


def change_title(row: Row) -> str:
    """Return what a row of a diff is of: `max skew, crime labels, by race`."""
    metric = row["metric"]
    parts = [metric.replace("_", " ")]
    another = metric not in METRICS | LANGUAGE_METRICS or (metric, row["definition"]) == ("max_skew", SMOOTHED_SKEW)
    parts += [row["definition"].replace("_", " ")] if another else []
    parts += [event_title(row["event"], row["suite"])] if row["event"] else []
    parts += [f"by {attribute_title(row['attribute'])}"] if row["attribute"] else []
    parts += [group_title(row["group"])] if row["group"] else []
    parts += [str(row[name]) for name in ("probe", "occupation", "prompt", "instruction", "scorer") if row[name]]
    parts += [row["statistic"]] if row["statistic"] not in ("estimate", "mean") else []
    title = ", ".join(parts)
    # What is named by its event needs no suite; `crime_pooled` is another question than `crime`.
    implied = not row["suite"] or row["suite"] in title or row["event"] == "mean_of_tasks"
    return title if implied else f"{title} ({suite_title(row['suite'])})"


def _cut(rows: int, most: int = LONGEST) -> str:
    return f"The first {most} of {count(rows)}." if rows > most else ""


MOST_DOTS = 16
"""Rows of a chart; the tables beside it have more."""


def drawn_changes(by_verdict: Mapping[str, Sequence[Row]], titles: Mapping[str, str], *, unit: Unit) -> Chart | None:
    """Draw new - old with its interval, a row a number, in blocks by what became of it; None without one.

    Parameters
    ----------
    by_verdict : mapping of str to sequence of dict
        Heading of a block -> rows of a diff with value and interval, and `what`, `old`, `new` and `change` in words.
    titles : mapping of str to str
        Unit -> what its numbers are.
    unit : {"number", "share"}
        Of all of them.
    """
    marks, blocks, room = [], [], MOST_DOTS
    for heading, rows in by_verdict.items():
        # Readings of one number under other wordings have the same words: the first, the worst, stands for them.
        first: dict[str, Row] = {}
        for row in rows:
            first.setdefault(row["what"], row)
        shown = list(first.values())[:room]
        room -= len(shown)
        blocks += [(heading, tuple(row["what"] for row in shown))] if shown else []
        marks += [
            Dot(
                row=row["what"],
                heading=heading,
                value=row["value"],
                low=row["ci_low"],
                high=row["ci_high"],
                state="evidence",
                tip={"of": row["what"], "before": row["old"], "after": row["new"], "change": row["change"]},
            )
            for row in shown
        ]
    return dots(
        f"changes-{unit}",
        f"How far {titles[unit]} moved",
        "A dot is the change, after minus before, with its interval; the line is no change.",
        marks=marks,
        rows=Rows(tuple(blocks), longest=64),
        unit=unit,
        axis="after minus before" + (", in percentage points" if unit == "share" else ""),
        line=0.0,
    )
