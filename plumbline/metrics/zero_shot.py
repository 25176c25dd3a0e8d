"""Zero-shot accuracy: whether a model sees what a dataset labels, and how well it knows the classes of a benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.blocks import Rows, blocks, map_rows
from plumbline.catalog.schema import Row, metric_frame
from plumbline.catalog.suites import VARIANT_SUITES, Candidate, Suite
from plumbline.metrics.cell import Cell, base_row, flag_clustering
from plumbline.metrics.family import Family, MetricSettings
from plumbline.reasons import reason
from plumbline.statistics.estimates import Estimate
from plumbline.statistics.intervals import mean_of_proportions, wilson

CHANCE = "chance"
"""Column `statistic` of what guesses give that know nothing of the images: the same ones, dealt at random."""

_UNKNOWN = ""


@dataclass(frozen=True)
class Guesses:
    """What a model takes the images for in one wording.

    Attributes
    ----------
    attribute : str
        Column of the records that has the labels.
    suite : Suite
    wording : str
        Name of the template; empty of a suite with one wording.
    guessed, labelled : (n,) str arrays
        In words that every wording shares; "" where an image is left out or has no label among the classes.
    """

    attribute: str
    suite: Suite
    wording: str
    guessed: NDArray[np.str_]
    labelled: NDArray[np.str_]


def zero_shot_accuracy(guessed: NDArray[np.str_], labelled: NDArray[np.str_], *, confidence: float = 0.95) -> Estimate:
    """Return the share of images whose best match among the classes is their label, with Wilson's interval.

    Parameters
    ----------
    guessed, labelled : (n,) str arrays
        "" in `labelled` leaves an image out; without images the value is nan.
    """
    known = labelled != _UNKNOWN
    return _share((guessed == labelled)[known].astype(float), confidence)


def chance_accuracy(guessed: NDArray[np.str_], labelled: NDArray[np.str_]) -> float:
    """Return the accuracy of the same guesses if they had nothing to do with the images: sum of P(guess) P(label)."""
    known = labelled != _UNKNOWN
    if not known.any():
        return float("nan")
    guessed, labelled = guessed[known], labelled[known]
    return float(sum((guessed == label).mean() * (labelled == label).mean() for label in np.unique(labelled)))


def wording_agreement(guesses: NDArray[np.str_], *, confidence: float = 0.95) -> Estimate:
    """Return the share of images that two wordings take for the same, mean over the pairs of wordings.

    Parameters
    ----------
    guesses : (w, n) str array
        Of w wordings; empty where an image was not asked in one, or its answer is of no class. Such an image counts in
        the pairs of the others; without a pair it is left out. nan of fewer than two wordings. The interval is that of
        one pair: conservative for several.
    """
    pairs = list(combinations(guesses, 2))
    if not pairs:
        return Estimate(float("nan"), float("nan"), float("nan"), n=guesses.shape[1])
    both = np.array([(one != _UNKNOWN) & (other != _UNKNOWN) for one, other in pairs])
    same = np.array([one == other for one, other in pairs]) & both
    seen = both.any(axis=0)
    if not seen.any():
        return Estimate(float("nan"), float("nan"), float("nan"), n=0, reason=(reason("no_image_in_two_wordings"),))
    return _share(same[:, seen].sum(axis=0) / both[:, seen].sum(axis=0), confidence)


def _share(right: NDArray[np.float64], confidence: float) -> Estimate:
    if not len(right):
        return Estimate(float("nan"), float("nan"), float("nan"), n=0, reason=(reason("no_labelled_images"),))
    low, high = wilson(right.sum(), len(right), confidence=confidence)
    return Estimate(float(right.mean()), float(low), float(high), n=len(right))


# --- What a cell's suites take its images for.


def cell_guesses(cell: Cell) -> Iterator[Guesses]:
    """Give the guesses of every suite whose candidates name what the records label.

    The classes of a Trident suite; the demographic words of an outcome suite, as race and as gender; the marks of
    each template of `markedness`.
    """
    for name, logits in sorted(cell.logits.items()):
        suite, records = logits.suite, cell.labels(name)
        kept = cell.rows(name)
        for attribute, wording, columns, classes in _classes(suite):
            if attribute not in records.columns:
                continue
            labelled = np.array([_plain(label) for label in records[attribute].cast(pl.String).fill_null("")])
            labelled[~(np.isin(labelled, classes) & kept)] = _UNKNOWN
            # A word that stands for no label of this dataset is no class here.
            occur = np.isin(classes, labelled)
            if len(np.unique(np.array(classes)[occur])) < 2:
                continue
            names, codes = np.unique(np.array(classes)[occur], return_inverse=True)
            best = map_rows(partial(_best_class, columns=np.array(columns)[occur], codes=codes), logits.scores)
            labelled[best < 0] = _UNKNOWN
            if (best >= 0).any():
                yield Guesses(attribute, suite, wording, np.where(best < 0, _UNKNOWN, names[best]), labelled)


def _best_class(scores: NDArray[Any], *, columns: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the (n,) classes of the best of some columns; -1 where columns of several classes are equally good.

    A model's responses hardly ever are; stored choices are, where the chosen text is of no class, or is not known.
    """
    among = scores[:, columns]
    best = among.argmax(axis=1)
    rows = np.arange(len(among))
    tied = (among == among[rows, best][:, None]) & (codes != codes[best][:, None])
    return np.asarray(np.where(tied.any(axis=1), -1, codes[best]))


def _classes(suite: Suite) -> Iterator[tuple[str, str, list[int], list[str]]]:
    """Give attribute, wording, columns of the suite, and the class of each."""
    if suite.id == "trident" and suite.attribute is not None:
        yield suite.attribute, "", suite.columns("class"), [_plain(label) for label in suite.class_labels]
    if suite.family == "outcomes" and suite.id not in VARIANT_SUITES and (columns := suite.columns("demographic")):
        words = [suite.candidates[i].id.rsplit(" ", 1) for i in columns]
        if all(len(word) == 2 for word in words):
            yield "race", "", columns, [_plain(race) for race, _ in words]
            yield "gender", "", columns, [_plain(gender) for _, gender in words]
    if suite.family == "markedness":
        marks = sorted({candidate.category for candidate in suite.candidates} - {"blank"})
        for template in suite.templates:
            for attribute in marks:
                of = [(i, each.word) for i, each in enumerate(suite.candidates) if _marks(each, template, attribute)]
                yield attribute, template, [i for i, _ in of], [_plain(word) for _, word in of]


def _marks(candidate: Candidate, template: str, attribute: str) -> bool:
    return candidate.template == template and candidate.category == attribute


def _plain(label: str) -> str:
    """Return a label as every wording of it is compared: `Latino_Hispanic` and `latino` are one."""
    return label.lower().split("_")[0]


# --- The rows.


def sanity_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return zero-shot accuracy against chance of each suite and attribute, and the agreement of wordings."""
    rows: list[Row] = []
    by_attribute: dict[str, list[Guesses]] = {}
    for guesses in cell_guesses(cell):
        by_attribute.setdefault(guesses.attribute, []).append(guesses)
    for attribute, wordings in by_attribute.items():
        for one in wordings:
            common = base_row(
                cell, suite=one.suite.id, suite_hash=one.suite.hash, attribute=attribute, probe=one.wording or None,
                metric="zero_shot_accuracy", definition="among_classes",
            )  # fmt: skip
            accuracy = zero_shot_accuracy(one.guessed, one.labelled, confidence=settings.confidence)
            chance = chance_accuracy(one.guessed, one.labelled)
            weak = reason("at_chance", chance=chance) if accuracy.ci_low <= chance else None
            rows.append(common | accuracy.columns(weak))
            nothing = Estimate(chance, float("nan"), float("nan"), n=accuracy.n, reason=(reason("dealt_answers"),))
            rows.append(common | {"statistic": CHANCE} | nothing.columns())
        if len(wordings) > 1:
            first = wordings[0]
            answers = [np.where(one.labelled != _UNKNOWN, one.guessed, _UNKNOWN) for one in wordings]
            agreement = wording_agreement(np.array(answers), confidence=settings.confidence)
            # Of other wordings it is another number: what was asked beside changes it.
            among = Counter(one.suite.id for one in wordings)
            names = ", ".join(f"{suite} × {many}" if many > 1 else suite for suite, many in among.items())
            common = base_row(cell, suite=first.suite.id, suite_hash=first.suite.hash, attribute=attribute, probe=names)
            of = {"metric": "wording_agreement", "definition": "mean_of_pairs"}
            rows.append(common | of | agreement.columns(reason("wordings_compared", wordings=len(wordings))))
    return metric_frame(flag_clustering(rows, cell.records))


SANITY = Family(name="sanity_metrics", needs=("trident", "outcomes", "markedness"), compute=sanity_rows)


# --- What a model can do: zero-shot accuracy on the classes of a labelled dataset, as CLIP_benchmark
# computes it.

_TOP = (1, 5)


class Recognised(NamedTuple):
    """Accuracy over all images and its mean over classes.

    Attributes
    ----------
    top_1, top_5 : Estimate
        Share of images whose class is the best match, or among the five best, with Wilson's interval; top-5 is nan of
        fewer than five classes.
    mean_per_class : Estimate
        Mean over classes of the share that is recognised, with the interval of `mean_of_proportions`.
    """

    top_1: Estimate
    top_5: Estimate
    mean_per_class: Estimate


def class_ranks(scores: Rows, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at which place the class of each image stands, from 0; of equal scores the lower index stands first.

    Parameters
    ----------
    scores : (n, m) numbers
    classes : (n,) int64
        Of an image without one, below 0, the place means nothing.
    """
    ranks = [np.zeros(0, dtype=np.int64)]
    for rows in blocks(0, len(scores), scores.shape[1]):
        values, true = scores[rows], classes[rows, None]
        of_class = np.take_along_axis(values, np.maximum(true, 0), axis=1)
        earlier = np.arange(values.shape[1]) < true
        ranks.append(((values > of_class) | ((values == of_class) & earlier)).sum(axis=1))
    return np.concatenate(ranks)


def zero_shot_recognition(
    ranks: NDArray[np.int64], classes: NDArray[np.int64], *, number: int, confidence: float = 0.95
) -> Recognised:
    """Return how many images are recognised.

    Parameters
    ----------
    ranks : (n,) int64
        At which place the true class of an image stands among all classes, from 0; see `class_ranks`.
    classes : (n,) int64
        The true class of each.
    number : int
        How many classes there are to choose from.
    """
    n = len(ranks)
    if not n:
        nothing = Estimate(float("nan"), float("nan"), float("nan"), n=0, reason=(reason("no_labelled_images"),))
        return Recognised(nothing, nothing, nothing)
    chosen = (reason("classes_to_choose_from", classes=number),)
    top = []
    for k in _TOP:
        hits = int((ranks < k).sum())
        low, high = wilson(hits, n, confidence=confidence)
        top.append(Estimate(hits / n, float(low), float(high), n=n, reason=chosen))
    if number < _TOP[1]:
        few = (reason("too_few_classes", classes=number),)
        top[1] = Estimate(float("nan"), float("nan"), float("nan"), n=n, reason=few)
    totals = np.bincount(classes, minlength=number)
    hits_of = np.bincount(classes[ranks == 0], minlength=number)
    seen = totals > 0
    low, high = mean_of_proportions(hits_of[seen], totals[seen], confidence=confidence)
    mean = float((hits_of[seen] / totals[seen]).mean())
    return Recognised(top[0], top[1], Estimate(mean, float(low), float(high), n=n, reason=chosen))


def utility_rows(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
    """Return accuracy and mean per-class recall of every suite of classes."""
    rows = []
    for name, logits in sorted(cell.logits.items()):
        suite = logits.suite
        if not suite.ensemble:
            continue
        position = {candidate.id: i for i, candidate in enumerate(suite.candidates)}
        labels = cell.records[str(suite.attribute)].to_list()
        of_image = np.array([position.get(label, -1) for label in labels], dtype=np.int64)
        known = np.flatnonzero((of_image >= 0) & cell.rows(name))
        ranks = class_ranks(logits.scores, of_image)[known]
        recognised = zero_shot_recognition(
            ranks, of_image[known], number=len(suite.candidates), confidence=settings.confidence
        )
        common = base_row(cell, suite=suite.id, suite_hash=suite.hash, attribute=suite.attribute)
        for metric, definition, estimate in (
            ("utility_accuracy", "top_1", recognised.top_1),
            ("utility_accuracy", "top_5", recognised.top_5),
            ("mean_per_class_recall", "top_1", recognised.mean_per_class),
        ):
            rows.append(common | {"metric": metric, "definition": definition} | estimate.columns())
    return metric_frame(rows)


UTILITY = Family(name="utility_metrics", needs=("utility",), compute=utility_rows)
