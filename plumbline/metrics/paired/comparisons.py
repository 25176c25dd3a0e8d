"""What is compared within a cell: outcomes, Trident tests, retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row
from plumbline.catalog.suites import TASKS, VALENCES, Suite
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.disparities import PARITY, SKEWS, Statistic, batched_parity_difference
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.effects import Compared, Comparison, Key, PairedAnswers, SideNames, everyone, paired_rows
from plumbline.metrics.predictions import EventKey, EventPredictions, Predictions, predictions_of
from plumbline.metrics.trident.scores import probe_predictions
from plumbline.statistics.counts import mean_shares, shares
from plumbline.statistics.groups import Groups, label_codes, mixed_groups

HITS = MappingProxyType(
    {
        "image_to_text@1": ("retrieval_recall", "image_to_text@1"),
        "image_to_text@5": ("retrieval_recall", "image_to_text@5"),
        "text_to_image_r_precision": ("retrieval_r_precision", "text_to_image"),
    }
)
"""Retrieval criterion -> metric and definition of the share of images that meet it."""

_AT_ONCE = 16_000_000


def retrieval_hits(
    images: NDArray[np.float32], captions: NDArray[np.float32], caption_of: NDArray[np.int64]
) -> dict[str, NDArray[np.bool_]]:
    """Return for every image whether it finds its caption, and whether its caption finds it.

    Parameters
    ----------
    images : (n, d) float32
        Unit vectors.
    captions : (c, d) float32
        Unit vectors; several images may share a caption, as captions made of labels do.
    caption_of : (n,) int
        Position of each image's caption.

    Returns
    -------
    dict of str to (n,) bool
        By the names of `HITS`. `image_to_text@k`: the image's caption is among the k captions nearest to it; ties
        take the lower position. `text_to_image_r_precision`: the image is among the R images nearest to its caption,
        R being the number of images with that caption; ties take the earlier image. Its mean over images is the mean
        over captions of R-precision, weighted by R (Manning, Raghavan & Schütze 2008, section 8.4).

        At most 64 MiB of similarities exist at a time, whatever n and c.

    Raises
    ------
    MetricError
        If the shapes disagree, a caption's position is out of range, or a vector is not of unit norm.
    """
    _check(images, captions, caption_of)
    place = np.empty(len(images), dtype=np.int64)
    for rows in _chunks(len(images), len(captions)):
        place[rows] = _places(images[rows] @ captions.T, caption_of[rows])
    found = np.zeros(len(images), dtype=bool)
    own = np.argsort(caption_of, kind="stable")
    relevant = np.bincount(caption_of, minlength=len(captions))
    ends = np.cumsum(relevant)
    used = np.flatnonzero(relevant)
    for rows in _chunks(len(used), len(images)):
        for caption, scores in zip(used[rows], captions[used[rows]] @ images.T):
            of_caption = own[ends[caption] - relevant[caption] : ends[caption]]
            found[of_caption] = _among_best(scores, of_caption)
    return {"image_to_text@1": place < 1, "image_to_text@5": place < 5, "text_to_image_r_precision": found}


def _chunks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // max(1, columns))
    return (slice(start, start + step) for start in range(0, rows, step))


def _places(scores: NDArray[np.float32], own: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each row's own column in its (b, c) scores, from 0."""
    at_own = np.take_along_axis(scores, own[:, None], axis=1)
    earlier = np.arange(scores.shape[1]) < own[:, None]
    return (scores > at_own).sum(axis=1) + ((scores == at_own) & earlier).sum(axis=1)


def _among_best(scores: NDArray[np.float32], chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of r chosen positions are among the r highest of all (n,) scores."""
    r = len(chosen)
    least = scores.max() if r == 1 else np.partition(scores, len(scores) - r)[len(scores) - r]
    # As many of those that tie at the r-th place as there is room for, the earlier ones.
    tied = np.flatnonzero(scores == least)[: r - int((scores > least).sum())]
    return (scores[chosen] > least) | np.isin(chosen, tied, assume_unique=True)


def _check(images: NDArray[np.float32], captions: NDArray[np.float32], caption_of: NDArray[np.int64]) -> None:
    shapes = f"images {images.shape}, captions {captions.shape}, caption_of {caption_of.shape}"
    if (
        images.ndim != 2
        or captions.ndim != 2
        or images.shape[1] != captions.shape[1]
        or caption_of.shape != images.shape[:1]
    ):
        raise MetricError("images and captions must be of one space", found=shapes, expected="(n, d), (c, d), (n,)")
    if caption_of.size and not 0 <= caption_of.min() <= caption_of.max() < len(captions):
        raise MetricError(
            "an image's caption is none of the captions",
            found=f"{caption_of.min()} .. {caption_of.max()}",
            expected=f"0 .. {len(captions) - 1}",
        )
    for name, vectors in (("image", images), ("caption", captions)):
        away = np.abs(np.linalg.norm(vectors, axis=1) - 1)
        # Written so that nan is caught too.
        if not (away <= 1e-3).all():
            raise MetricError(
                f"retrieval is by cosine: {name} vectors must be of unit norm",
                found=f"{int((~(away <= 1e-3)).sum())} of {len(vectors)} are not",
                hint="divide them by their norms",
            )


# --- Comparisons of the outcome suites: their events, and the mean over the three tasks.


def _harm(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return shares(counts.sum(axis=-1), np.broadcast_to(totals.sum(axis=-1), counts.shape[:-1])).mean(axis=-1)


HARM = Statistic("harm_rate", "top1", _harm, disparity=False)
SKEW_EFFECTS = tuple(skew for skew in SKEWS if skew.definition in ("mean_over_pairs", "smoothed"))


def outcome_answers(answered: Predictions) -> PairedAnswers:
    """Return which images each checkpoint puts into which event."""
    hits: dict[str, dict[Key, NDArray[Any]]] = {
        model: {key: event.hit for key, event in own.items()} for model, own in answered.answers.items()
    }
    return PairedAnswers(hits, answered.clusters)


def outcome_comparisons(answered: Predictions) -> list[Comparison]:
    """Return what is compared: the harm rate of every event over all images, its disparities by every attribute.

    Columns are `suite`, `event` and `attribute` (null for harm rates). The disparities are the parity difference and,
    where the event has one, Max Skew (`mean_over_pairs`, `smoothed`). The mean over the three tasks is an event of
    `outcomes`, where all three were asked and have the same labels.
    """
    return list(_comparisons(answered))


def _comparisons(answered: Predictions) -> Iterator[Comparison]:
    every = {key: event for own in answered.answers.values() for key, event in own.items()}
    for key, event in every.items():
        yield from _of_events(key, {key: event}, answered.groups[key[0]])
    # In the paper's order, so that the draws do not depend on the order in which suites were given.
    tasks = {k: event for task in TASKS for k, event in every.items() if k[0] == task and event.skewed}
    labelled = [answered.groups[task] for task in TASKS if task in answered.groups]
    # A mean over tasks is of the same groups: none where their filters merge labels differently.
    if {suite for suite, _ in tasks} == set(TASKS) and all(own is labelled[0] for own in labelled):
        yield from _of_events(("outcomes", "mean_of_tasks"), tasks, labelled[0])


def _of_events(
    name: EventKey, events: Mapping[EventKey, EventPredictions], groups: list[Groups]
) -> Iterator[Comparison]:
    kept = np.logical_and.reduce([each.kept for each in events.values()])
    skewed = all(each.skewed for each in events.values())
    common = {"suite": name[0], "event": name[1]}
    yield Comparison(tuple(events), everyone(kept), (HARM,), common | {"attribute": None})
    for each in groups:
        own = replace(each, codes=np.where(kept, each.codes, -1))
        statistics = (*SKEW_EFFECTS, PARITY) if skewed else (PARITY,)
        yield Comparison(tuple(events), own, statistics, common | {"attribute": each.attribute})


# --- Comparisons of the Trident tests before and after a mitigation: images classified as the probe or correctly.

_CORRECT: Key = ("trident", "right")
_CORRECT_CLASS: Key = ("trident", "right among classes")


@dataclass(frozen=True)
class TridentAnswers:
    """Who wins the one-probe tests of a cell, and who wins among the classes alone.

    Attributes
    ----------
    winner : (p, n) int64
        Top-1 of each one-probe test, in the suite's order of probes: 0 .. C - 1 is a class, C the probe.
    class_winner : (p, n) or (1, n) int64
        Top-1 among the classes alone; one row for each probe where each has adjusted logits of its own.
    """

    winner: NDArray[np.int64] = field(repr=False)
    class_winner: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, logits: SuiteLogits) -> TridentAnswers:
        """Return the answers that the logits of a Trident suite give; ties take the lower index."""
        n_classes = len(logits.suite.class_labels)
        classes, probes = logits.logits[:, :n_classes], logits.logits[:, n_classes:]
        winner = probe_predictions(classes, probes)
        return cls(winner, classes.argmax(axis=1)[None].astype(np.int64))

    def at(self, rows: NDArray[np.int64]) -> TridentAnswers:
        """Return the answers to some images, in their order."""
        return TridentAnswers(self.winner[:, rows], self.class_winner[:, rows])


@dataclass(frozen=True)
class TridentTests:
    """The one-probe tests of a suite on labelled images.

    Attributes
    ----------
    classes : Groups
        True classes; -1 for images that do not count.
    mixed : Groups or None
        Classes by automatic gender label, where there is one and the classes are no genders.
    """

    suite: Suite
    classes: Groups
    mixed: Groups | None

    @classmethod
    def of(cls, suite: Suite, records: pl.DataFrame, kept: NDArray[np.bool_]) -> TridentTests | None:
        """Return the tests on some records; None without a label of the suite's classes."""
        if suite.attribute is None or suite.attribute not in records.columns:
            return None
        codes = np.where(kept, label_codes(records[suite.attribute], suite.class_labels), -1)
        if not (codes >= 0).any():
            return None
        classes = Groups(suite.attribute, suite.class_labels, codes)
        return cls(suite, classes, mixed_groups(classes, records))

    @property
    def valences(self) -> dict[str, NDArray[np.bool_]]:
        """Return the (p,) mask of the probes of each valence that the suite has."""
        masks = {valence: np.array([p.category == valence for p in self.suite.probes]) for valence in VALENCES}
        return {valence: mask for valence, mask in masks.items() if mask.any()}

    def scores(self, answers: TridentAnswers, *, trials: int) -> dict[Key, NDArray[Any]]:
        """Return how many tests classified each image as the probe, by valence, and how many correctly.

        Parameters
        ----------
        trials : int
            What recognition among the classes alone is counted out of: a multiple of the rows of `class_winner`.
        """
        probe = len(self.suite.class_labels)
        as_probe = answers.winner == probe
        correct, correct_class = (
            (each == self.classes.codes).sum(axis=0) for each in (answers.winner, answers.class_winner)
        )
        return {
            **{("trident", valence): as_probe[mask].sum(axis=0) for valence, mask in self.valences.items()},
            _CORRECT: correct,
            _CORRECT_CLASS: correct_class * (trials // len(answers.class_winner)),
        }

    def comparisons(self, *, trials: int) -> Iterator[Comparison]:
        """Give what is compared, with columns `suite`, `event`, `attribute`, `kind` and `better`."""
        seen = everyone(self.classes.codes >= 0)
        classes = _by_name(self.classes)
        views = [("trident", classes), *([("trident_mixed", self.mixed)] if self.mixed else [])]
        for valence, mask in self.valences.items():
            key, tests = ("trident", valence), int(mask.sum())
            common = {"kind": "trident", "event": valence, "better": "lower"}
            rate = _share("probe_rate", "by_valence", tests)
            yield Comparison((key,), seen, (rate,), {**common, "suite": "trident", "attribute": None})
            for suite, groups in views:
                columns = {**common, "suite": suite, "attribute": groups.attribute}
                yield Comparison((key,), groups, (_gap(tests),), columns)
        cost = {"kind": "cost", "suite": "trident", "event": None, "attribute": None, "better": "higher"}
        tests = sum(int(mask.sum()) for mask in self.valences.values())
        macro = _macro("macro_accuracy", "mean_over_probes", tests)
        yield Comparison((_CORRECT,), classes, (macro,), cost)
        macro = _macro("zero_shot_accuracy", "macro", trials)
        yield Comparison((_CORRECT_CLASS,), classes, (macro,), cost)
        micro = _share("zero_shot_accuracy", "micro", trials)
        yield Comparison((_CORRECT_CLASS,), seen, (micro,), cost)


def compared_tests(tests: TridentTests, sides: Mapping[str, TridentAnswers]) -> Compared:
    """Return the scores of each side's answers, and their comparisons.

    Raises
    ------
    MetricError
        If answers are not of the suite's probes and images.
    """
    probes, n = len(tests.suite.probes), len(tests.classes.codes)
    for side, answers in sides.items():
        if answers.winner.shape != (probes, n) or answers.class_winner.shape not in ((probes, n), (1, n)):
            raise MetricError(
                "answers must be of the suite's probes and the cell's images",
                where=f"{tests.suite.id}, {side}",
                found=f"winner {answers.winner.shape}, class_winner {answers.class_winner.shape}",
                expected=f"({probes}, {n}), and the same or (1, {n})",
            )
    trials = max(len(answers.class_winner) for answers in sides.values())
    scores = {side: tests.scores(answers, trials=trials) for side, answers in sides.items()}
    return Compared(scores, list(tests.comparisons(trials=trials)))


def _by_name(groups: Groups) -> Groups:
    """Return groups in the order of their names, in which an attribute's groups stand: they then share their draws."""
    order = np.argsort(groups.names)
    codes = np.append(np.argsort(order), -1)[groups.codes]
    return replace(groups, names=tuple(groups.names[i] for i in order), codes=codes)


def _share(metric: str, definition: str, tests: int) -> Statistic:
    """Read the share of all tests of all images."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        trials = np.broadcast_to(tests * totals.sum(axis=-1), sums.shape[:-1])
        return shares(sums.sum(axis=-1), trials).mean(axis=-1)

    return Statistic(metric, definition, value, disparity=False)


def _gap(tests: int) -> Statistic:
    """Read the largest minus the smallest share of a group."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        return batched_parity_difference(sums, tests * totals).mean(axis=-1)

    return Statistic("parity_difference", "max_minus_min", value)


def _macro(metric: str, definition: str, tests: int) -> Statistic:
    """Read the mean of the shares over the groups that are not empty."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        trials = np.broadcast_to(tests * totals, sums.shape)
        return mean_shares(sums, trials).mean(axis=-1)

    return Statistic(metric, definition, value, disparity=False)


# --- Two states of one cell on the same images: before and after a mitigation, or an old checkpoint and
# its successor.

Hits = Mapping[str, NDArray[np.bool_]]
"""What retrieval finds, by the names of `HITS`: (n,) each, over a cell's records."""

_AFTER, _BEFORE = _SIDES = ("after", "before")
_RENAMED = {"value_first": "value_after", "value_second": "value_before"}
_Found = dict[str, dict[Key, NDArray[Any]]]


def cell_effects(
    before: Cell,
    after: Cell,
    *,
    rows: NDArray[np.bool_],
    named: tuple[str, ...],
    names: SideNames,
    settings: MetricSettings,
    answers: tuple[TridentAnswers | None, TridentAnswers | None] = (None, None),
    hits: tuple[Hits, Hits] | None = None,
) -> list[Row]:
    """Return after - before of everything that two states of one cell answer to the same images.

    See `mitigation_effects` for rows and intervals; `kind`, `better`, `value_before` and `value_after` are among
    their columns.

    Parameters
    ----------
    before, after : Cell
        Two states of the same n records. A suite counts where both have it, an image where both keep it.
    rows : (n,) bool
        Records that count.
    named : tuple of str
        What the draws are for: part of the generators' names.
    names : SideNames
        What reasons call the two states.
    answers, hits
        See `mitigation_effects`.
    """
    # Draws go by position: the order of the ids makes results independent of that of the records.
    chosen = np.flatnonzero(rows)
    at = chosen[before.records["image_id"].gather(chosen).arg_sort().to_numpy()]
    cells = {_AFTER: after, _BEFORE: before}
    answered = predictions_of([_outcomes(cells, side, at) for side in _SIDES])
    scores: _Found = {side: dict(own) for side, own in outcome_answers(answered).scores.items()}
    comparisons = [_of_outcome(each) for each in outcome_comparisons(answered)]
    parts = [_trident(cells, at, dict(zip(_SIDES, reversed(answers)))), _retrieval(hits, at)]
    for found, compared in parts:
        comparisons += compared
        for side, own in found.items():
            scores[side] |= own
    effects = paired_rows(
        PairedAnswers(scores, answered.clusters),
        comparisons,
        [(_AFTER, _BEFORE)],
        named=named,
        settings=settings,
        names=names,
    )
    return [{_RENAMED.get(name, name): value for name, value in row.items()} for _, row in effects]


def _outcomes(cells: Mapping[str, Cell], side: str, at: NDArray[np.int64]) -> Cell:
    """Return the outcome suites that all cells have, on the judged images; the side stands for the checkpoint."""
    cell = cells[side]
    logits = {
        name: replace(each, logits=each.ranking[at], cosine=None)
        for name, each in cell.logits.items()
        if each.suite.family == "outcomes" and all(name in other.logits for other in cells.values())
    }
    # Suites that share their labels must go on doing so: only then is there a mean over them.
    labels = {id(frame): frame[at] for frame in cell.relabelled.values()}
    return replace(
        cell,
        model=side,
        records=cell.records[at],
        logits=logits,
        keep={name: _kept(cells, name)[at] for name in logits},
        relabelled={name: labels[id(frame)] for name, frame in cell.relabelled.items()},
        images=None,
    )


def _kept(cells: Mapping[str, Cell], suite: str) -> NDArray[np.bool_]:
    return np.logical_and.reduce([cell.rows(suite) for cell in cells.values()])


def _of_outcome(compared: Comparison) -> Comparison:
    kind = "harm" if HARM in compared.statistics else "axis"
    return replace(compared, columns={**compared.columns, "kind": kind, "better": "lower"})


def _trident(cells: Mapping[str, Cell], at: NDArray[np.int64], given: Mapping[str, TridentAnswers | None]) -> Compared:
    """Return the scores of the one-probe tests and their comparisons, where both cells have them."""
    if any("trident" not in cell.logits for cell in cells.values()):
        return Compared({}, [])
    before = cells[_BEFORE]
    kept = _kept(cells, "trident")[at]
    tests = TridentTests.of(before.logits["trident"].suite, before.records[at], kept)
    if tests is None:
        return Compared({}, [])
    answers = {side: (given[side] or TridentAnswers.of(cell.logits["trident"])).at(at) for side, cell in cells.items()}
    return compared_tests(tests, answers)


def _retrieval(hits: tuple[Hits, Hits] | None, at: NDArray[np.int64]) -> Compared:
    """Return what retrieval finds, and the comparison of how often it does."""
    if hits is None:
        return Compared({}, [])
    found: _Found = {
        side: {("retrieval", name): own[name][at] for name in HITS} for side, own in zip(_SIDES, reversed(hits))
    }
    columns = {"kind": "cost", "suite": "retrieval", "event": None, "attribute": None, "better": "higher"}
    images = everyone(np.ones(len(at), dtype=bool))
    compared = [
        Comparison((("retrieval", name),), images, (Statistic(*told, value=_share_found, disparity=False),), columns)
        for name, told in HITS.items()
    ]
    return Compared(found, compared)


def _share_found(counts: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
    return shares(counts, np.broadcast_to(totals, counts.shape))[..., 0, 0]
