"""Comparisons within a cell: outcomes, Trident tests, retrieval; and of checkpoints that differ in one factor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import ESTIMATE, Row, Schema
from plumbline.catalog.suites import TASKS, VALENCES
from plumbline.errors import MetricError
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.disparities import PARITY, SKEW_STATISTICS, Statistic, batched_parity_difference
from plumbline.metrics.evidence import add_detectable_changes
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.effects import Compared, Comparison, Key, PairedAnswers, SideNames, everyone, paired_rows
from plumbline.metrics.predictions import EventKey, EventPredictions, Predictions, predictions_of
from plumbline.metrics.trident.rows import true_classes
from plumbline.metrics.trident.scores import probe_predictions
from plumbline.statistics.groups import Groups, mean_shares, mixed_groups, shares
from plumbline.statistics.multiplicity import add_q_values

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
    precision_hits = np.zeros(len(images), dtype=bool)
    by_caption = np.argsort(caption_of, kind="stable")
    relevant = np.bincount(caption_of, minlength=len(captions))
    ends = np.cumsum(relevant)
    used = np.flatnonzero(relevant)
    for rows in _chunks(len(used), len(images)):
        for caption, scores in zip(used[rows], captions[used[rows]] @ images.T):
            of_caption = by_caption[ends[caption] - relevant[caption] : ends[caption]]
            precision_hits[of_caption] = _among_best(scores, of_caption)
    return {"image_to_text@1": place < 1, "image_to_text@5": place < 5, "text_to_image_r_precision": precision_hits}


def caption_hits(
    images: NDArray[np.float32],
    captions: Sequence[str],
    texts: Sequence[str],
    features: NDArray[np.float32],
    *,
    rows: NDArray[np.bool_],
) -> dict[str, NDArray[np.bool_]]:
    """Return what `retrieval_hits` finds among some images and their captions; False for all other images.

    Parameters
    ----------
    images : (n, d) float32
        Embeddings of all images, of any length.
    captions : sequence of m str
        Of the images of `rows`, in their order.
    texts, features : sequence of t str, (t, d) float32
        Texts with their embeddings, the captions among them.
    rows : (n,) bool
        Which images; m of them.
    """

    def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    position = {text: i for i, text in enumerate(dict.fromkeys(captions))}
    row = {text: i for i, text in enumerate(texts)}
    caption_of = np.array([position[text] for text in captions])
    hits = retrieval_hits(unit(images[rows]), unit(features[[row[text] for text in position]]), caption_of)
    whole = {name: np.zeros(len(rows), dtype=bool) for name in hits}
    for name, of_rows in hits.items():
        whole[name][rows] = of_rows
    return whole


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


def _share(metric: str, definition: str, tests: int = 1) -> Statistic:
    """Return the share of all tests of all images, averaged over the events."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        trials = np.broadcast_to(tests * totals.sum(axis=-1), sums.shape[:-1])
        return shares(sums.sum(axis=-1), trials).mean(axis=-1)

    return Statistic(metric, definition, value, over=None)


HARM = _share("harm_rate", "top1")
PLAIN_SKEW, SMOOTHED_SKEW = "mean_over_pairs", "smoothed"
SKEW_EFFECTS = tuple(skew for skew in SKEW_STATISTICS if skew.definition in (PLAIN_SKEW, SMOOTHED_SKEW))
_PAIRS_LEFT_OUT = "pairs undefined"
"""What the reasons `undefined_pairs` and `undefined_pairs_of_side` say."""


def compared_skew(by: Sequence[str]) -> pl.Expr:
    """Return which definition of Max Skew tells how two sides differ: the mean over pairs, or the smoothed skew.

    Where a side leaves out pairs, since a group never has the event, its mean is of other pairs than the other side's:
    two such numbers say nothing of each other. The smoothed skew is of all pairs on both sides.

    Parameters
    ----------
    by : sequence of str
        Columns that name what is compared, besides the definition.
    """
    skew, definition, value = pl.col("metric") == "max_skew", pl.col("definition"), pl.col("value")
    left_out = pl.col("reason").fill_null("").str.contains(_PAIRS_LEFT_OUT, literal=True)
    partial = (skew & (definition == PLAIN_SKEW) & left_out).any().over(by)
    whole = (skew & (definition == SMOOTHED_SKEW) & ~left_out & value.is_finite().fill_null(value=False)).any().over(by)
    return pl.when(partial & whole).then(pl.lit(SMOOTHED_SKEW)).otherwise(pl.lit(PLAIN_SKEW))


def outcome_answers(answered: Predictions) -> PairedAnswers:
    """Return which images each checkpoint puts into which event."""
    hits: dict[str, dict[Key, NDArray[Any]]] = {
        model: {key: event.hit for key, event in events.items()} for model, events in answered.answers.items()
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
    every = {key: event for each in answered.answers.values() for key, event in each.items()}
    for key, event in every.items():
        yield from _of_events(key, {key: event}, answered.groups[key[0]])
    # In the paper's order, so that the draws do not depend on the order in which suites were given.
    tasks = {k: event for task in TASKS for k, event in every.items() if k[0] == task and event.skewed}
    labelled = [answered.groups[task] for task in TASKS if task in answered.groups]
    # A mean over tasks is of the same groups: none where their filters merge labels differently.
    if {suite for suite, _ in tasks} == set(TASKS) and all(each is labelled[0] for each in labelled):
        yield from _of_events(("outcomes", "mean_of_tasks"), tasks, labelled[0])


def _of_events(
    name: EventKey, events: Mapping[EventKey, EventPredictions], groups: list[Groups]
) -> Iterator[Comparison]:
    kept = np.logical_and.reduce([each.kept for each in events.values()])
    skewed = all(each.skewed for each in events.values())
    common = {"suite": name[0], "event": name[1]}
    yield Comparison(tuple(events), everyone(kept), (HARM,), common | {"attribute": None})
    for each in groups:
        of_kept = replace(each, codes=np.where(kept, each.codes, -1))
        statistics = (*SKEW_EFFECTS, PARITY) if skewed else (PARITY,)
        yield Comparison(tuple(events), of_kept, statistics, common | {"attribute": each.attribute})


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
        classes, probes = np.split(logits.logits[:], [n_classes], axis=1)
        winner = probe_predictions(classes, probes)
        return cls(winner, classes.argmax(axis=1)[None].astype(np.int64))


def _by_name(groups: Groups) -> Groups:
    """Sort groups by name, as `attribute_groups` does, so that comparisons of the same groups share their draws."""
    order = np.argsort(groups.names)
    codes = np.append(np.argsort(order), -1)[groups.codes]
    return replace(groups, names=tuple(groups.names[i] for i in order), codes=codes)


def _gap(tests: int) -> Statistic:
    """Return the largest minus the smallest share of a group."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        return batched_parity_difference(sums, tests * totals).mean(axis=-1)

    return Statistic("parity_difference", "max_minus_min", value)


def _macro(metric: str, definition: str, tests: int) -> Statistic:
    """Return the mean of the shares over the groups that are not empty."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        trials = np.broadcast_to(tests * totals, sums.shape)
        return mean_shares(sums, trials).mean(axis=-1)

    return Statistic(metric, definition, value, over=None)


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
    scores: _Found = {side: dict(by_key) for side, by_key in outcome_answers(answered).scores.items()}
    comparisons = [_of_outcome(each) for each in outcome_comparisons(answered)]
    parts = [_trident(cells, at, dict(zip(_SIDES, reversed(answers)))), _retrieval(hits, at)]
    for part_scores, compared in parts:
        comparisons += compared
        for side, by_key in part_scores.items():
            scores[side] |= by_key
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
    """Return the outcome suites that all cells have, on the compared images, with the side as name of the model."""
    cell = cells[side]
    logits = {
        name: replace(each, logits=each.scores[:][at], cosine=None)
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
    """Return the scores of the one-probe tests and their comparisons, where both cells have them and labels.

    A score is how many tests classified an image as the probe, by valence, and how many correctly.

    Raises
    ------
    MetricError
        If given answers are not of the suite's probes and the cell's images.
    """
    before = cells[_BEFORE]
    if any("trident" not in cell.logits for cell in cells.values()):
        return Compared({}, [])
    suite = before.logits["trident"].suite
    classes = true_classes(before, suite)
    codes = np.where(_kept(cells, "trident"), -1 if classes is None else classes.codes, -1)[at]
    if classes is None or not (codes >= 0).any():
        return Compared({}, [])
    classes = replace(classes, codes=codes)
    answers = {side: given[side] or TridentAnswers.of(cell.logits["trident"]) for side, cell in cells.items()}
    probes, n, n_classes = len(suite.probes), before.records.height, len(suite.class_labels)
    for side, each in answers.items():
        if each.winner.shape != (probes, n) or each.class_winner.shape not in ((probes, n), (1, n)):
            raise MetricError(
                "answers must be of the suite's probes and the cell's images",
                where=f"{suite.id}, {side}",
                found=f"winner {each.winner.shape}, class_winner {each.class_winner.shape}",
                expected=f"({probes}, {n}), and the same or (1, {n})",
            )
    trials = max(len(each.class_winner) for each in answers.values())
    masks = {valence: np.array([p.category == valence for p in suite.probes]) for valence in VALENCES}
    valences = {("trident", valence): mask for valence, mask in masks.items() if mask.any()}
    scores: _Found = {}
    for side, each in answers.items():
        winner, class_winner = each.winner[:, at], each.class_winner[:, at]
        scores[side] = {key: (winner == n_classes)[mask].sum(axis=0) for key, mask in valences.items()}
        scores[side][_CORRECT] = (winner == codes).sum(axis=0)
        # Scaled to the same number of trials on both sides.
        scores[side][_CORRECT_CLASS] = (class_winner == codes).sum(axis=0) * (trials // len(class_winner))
    tests: dict[Key, int] = {key: int(mask.sum()) for key, mask in valences.items()}
    mixed = mixed_groups(classes, before.records[at])
    return Compared(scores, list(_trident_comparisons(classes, mixed, tests, trials)))


def _trident_comparisons(
    classes: Groups, mixed: Groups | None, tests: Mapping[Key, int], trials: int
) -> Iterator[Comparison]:
    """Give what is compared, with columns `suite`, `event`, `attribute`, `kind` and `better`; see `TRANSFER_SCHEMA`."""
    seen, classes = everyone(classes.codes >= 0), _by_name(classes)
    views = [("trident", classes), *([("trident_mixed", mixed)] if mixed else [])]
    for key, n in tests.items():
        common = {"kind": "trident", "event": key[1], "better": "lower"}
        rate = _share("probe_rate", "by_valence", n)
        yield Comparison((key,), seen, (rate,), {**common, "suite": "trident", "attribute": None})
        for suite, groups in views:
            yield Comparison((key,), groups, (_gap(n),), {**common, "suite": suite, "attribute": groups.attribute})
    cost = {"kind": "cost", "suite": "trident", "event": None, "attribute": None, "better": "higher"}
    macro = _macro("macro_accuracy", "mean_over_probes", sum(tests.values()))
    yield Comparison((_CORRECT,), classes, (macro,), cost)
    yield Comparison((_CORRECT_CLASS,), classes, (_macro("zero_shot_accuracy", "macro", trials),), cost)
    yield Comparison((_CORRECT_CLASS,), seen, (_share("zero_shot_accuracy", "micro", trials),), cost)


def _retrieval(hits: tuple[Hits, Hits] | None, at: NDArray[np.int64]) -> Compared:
    """Return what retrieval finds, and the comparison of how often it does."""
    if hits is None:
        return Compared({}, [])
    by_side: _Found = {
        side: {("retrieval", name): of_side[name][at] for name in HITS} for side, of_side in zip(_SIDES, reversed(hits))
    }
    columns = {"kind": "cost", "suite": "retrieval", "event": None, "attribute": None, "better": "higher"}
    images = everyone(np.ones(len(at), dtype=bool))
    rates = {("retrieval", name): _share(*named) for name, named in HITS.items()}
    return Compared(by_side, [Comparison((key,), images, (rate,), columns) for key, rate in rates.items()])


# --- Pairs of checkpoints that differ in one design factor and in nothing else that the audit file declares.

# The paper's sign is first - second of "B/32 vs L/14", "400M vs 2B", "OpenCLIP vs CLIP" (its tables 2 and 4). These
# are its levels in the spellings that checkpoints go by, so that the sign does not depend on the order of the file.
PUBLISHED_LEVELS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "size": (("b32", "vitb32"), ("l14", "vitl14", "l14336", "vitl14336")),
    "data_amount": (("400m",), ("2b",)),
    "data_source": (("openclip", "laion"), ("clip", "openai", "proprietary", "wit", "webimagetext")),
}
"""Factor -> levels in the order of the published comparison; spellings without case and punctuation."""


@dataclass(frozen=True)
class FactorPair:
    """Two checkpoints that differ in one factor. An effect is the value of `first` minus that of `second`.

    Attributes
    ----------
    factor : str
        The factor in which they differ.
    level_first, level_second : str
        Their levels of it.
    first, second : str
        Ids of the checkpoints.
    held : str
        Their common levels of the other factors, as `3k, atlas`; empty where there is no other.
    """

    factor: str
    level_first: str
    level_second: str
    first: str
    second: str
    held: str


def factor_pairs(factors: Mapping[str, Mapping[str, str]]) -> tuple[FactorPair, ...]:
    """Find the pairs of checkpoints that differ in exactly one factor.

    The first of a pair has the level that comes first: in the paper's order where both levels are the paper's
    (`PUBLISHED_LEVELS`), otherwise in the order in which levels first appear among the encoders of the audit file.
    So `small` - `large` where the file lists a small checkpoint first.

    Parameters
    ----------
    factors : mapping of str to mapping of str to str
        Checkpoint -> factor -> level, in the order of the audit file.

    Returns
    -------
    tuple of FactorPair
        By factor, then in the order of the file. Checkpoints that declare other factors, or none, are in no pair
        with each other: undeclared factors cannot be held constant.
    """
    order: dict[str, dict[str, int]] = {}
    for levels_of in factors.values():
        for factor, level in levels_of.items():
            levels = order.setdefault(factor, {})
            levels.setdefault(level, len(levels))
    pairs = [
        _ordered(one, other, differing[0], factors, order)
        for one, other in combinations(factors, 2)
        if factors[one].keys() == factors[other].keys()
        and len(differing := [f for f in factors[one] if factors[one][f] != factors[other][f]]) == 1
    ]
    names = list(order)
    return tuple(sorted(pairs, key=lambda pair: names.index(pair.factor)))


def _ordered(
    one: str, other: str, factor: str, factors: Mapping[str, Mapping[str, str]], order: Mapping[str, Mapping[str, int]]
) -> FactorPair:
    levels = (factors[one][factor], factors[other][factor])
    ranks = [_published_rank(factor, level) for level in levels]
    if None in ranks or ranks[0] == ranks[1]:
        ranks = [order[factor][level] for level in levels]
    first, second = (one, other) if (ranks[0] or 0) < (ranks[1] or 0) else (other, one)
    held = ", ".join(level for name, level in factors[first].items() if name != factor)
    return FactorPair(factor, factors[first][factor], factors[second][factor], first, second, held)


def _published_rank(factor: str, level: str) -> int | None:
    spelling = re.sub(r"[^a-z0-9]", "", level.lower())
    for rank, spellings in enumerate(PUBLISHED_LEVELS.get(factor, ())):
        if spelling in spellings:
            return rank
    return None


# --- What one design factor changes: differences of disparities between two checkpoints on the same
# images.
#
# Source: Al Sahili et al., "Data Matters Most", sections 3.4 and 4.2 to 4.4, tables 2 and 4.

EFFECT_SCHEMA: Schema = {
    # what was compared
    "factor": pl.String,
    "level_first": pl.String,
    "level_second": pl.String,
    "held": pl.String,
    "first": pl.String,
    "second": pl.String,
    "dataset": pl.String,
    "suite": pl.String,
    "attribute": pl.String,
    "event": pl.String,
    "metric": pl.String,
    "definition": pl.String,
    # the difference, and the two numbers of the metric table that it is the difference of
    **ESTIMATE,
    "value_first": pl.Float64,
    "value_second": pl.Float64,
    "smallest_detectable": pl.Float64,
}
"""One row per effect; `value` is `value_first` - `value_second`, `attribute` is null for harm rates."""


def factor_effects(
    datasets: Iterable[Predictions], pairs: Sequence[FactorPair], *, settings: MetricSettings
) -> pl.DataFrame:
    """Return the effect of each factor: the value of the first checkpoint of each pair minus that of the second.

    For every event and attribute: Max Skew (`mean_over_pairs`, and `smoothed` beside it) where the event has one, and
    the parity difference; for every event the harm rate; and all of them for the mean over the three tasks.

    Parameters
    ----------
    datasets : iterable of Predictions
        Used one after the other. A pair is compared wherever both its checkpoints have answers.
    pairs : sequence of FactorPair

    Returns
    -------
    DataFrame
        In `EFFECT_SCHEMA`; no row without pairs. Positive: the first of the pair is the more biased, or does more
        harm. `n` counts the images behind both values.

        The interval is a paired BCa bootstrap over images: a resample holds both checkpoints' answers to an image.
        A disparity cannot fall below parity, and resampling inflates it; so where a chi-squared test (for
        clustered images Wald's, by the spread over clusters) finds no difference between the groups of one checkpoint,
        the interval is extended to that checkpoint at parity and `reason` says so.

        `p` is against "no effect on this statistic", the largest of three:

        1. the swap-permutation p: the share of random swaps of the two checkpoints' answers, image by image, that
           change it as much in either direction (exact for "they answer alike", which is more than "no effect": equal
           skews at very different harm rates are not alike);
        2. the level at which the BCa interval reaches 0;
        3. the chi-squared (Wald) p of the more biased checkpoint, for a disparity.

        So p is never below 1 - confidence while the interval holds 0. `q` is within
        `plumbline.statistics.multiplicity.CORRECTED_TOGETHER`. Simulated coverage and level: docs/decisions/0012.
    """
    rows = chain.from_iterable(_dataset_rows(answered, pairs, settings) for answered in datasets)
    effects = add_q_values(pl.DataFrame(list(rows), schema=EFFECT_SCHEMA, orient="row"), of="factor_effects")
    return add_detectable_changes(effects, of="factor_effects", confidence=settings.confidence)


def _dataset_rows(answered: Predictions, pairs: Sequence[FactorPair], settings: MetricSettings) -> list[Row]:
    present = [pair for pair in pairs if {pair.first, pair.second} <= answered.answers.keys()]
    if not present:
        return []
    rows = paired_rows(
        outcome_answers(answered),
        outcome_comparisons(answered),
        [(pair.first, pair.second) for pair in present],
        named=("factor_effects", answered.dataset),
        settings=settings,
    )
    return [{"dataset": answered.dataset, **vars(present[number]), **row} for number, row in rows]
