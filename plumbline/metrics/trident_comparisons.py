"""What is compared of the Trident tests before and after a mitigation: who becomes the probe, and who is recognised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import MetricError
from plumbline.metrics.cell import SuiteLogits
from plumbline.metrics.paired_comparisons import Compared, Comparison, Key, Reading, everyone
from plumbline.metrics.rates import parity_differences
from plumbline.metrics.trident import probe_predictions
from plumbline.statistics.counts import mean_shares, shares
from plumbline.statistics.groups import Groups, label_codes, mixed_groups
from plumbline.tables.suites import VALENCES, Suite

_RIGHT: Key = ("trident", "right")
_RIGHT_CLASS: Key = ("trident", "right among classes")


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
        masks = {
            valence: np.array([p.category == valence for p in self.suite.probes]) for valence in VALENCES
        }
        return {valence: mask for valence, mask in masks.items() if mask.any()}

    def scores(self, answers: TridentAnswers, *, trials: int) -> dict[Key, NDArray[Any]]:
        """Return in how many tests each image became a probe, by valence, and in how many it was recognised.

        Parameters
        ----------
        trials : int
            What recognition among the classes alone is counted out of: a multiple of the rows of `class_winner`.
        """
        probe = len(self.suite.class_labels)
        became = answers.winner == probe
        right, right_class = (
            (each == self.classes.codes).sum(axis=0) for each in (answers.winner, answers.class_winner)
        )
        return {
            **{("trident", valence): became[mask].sum(axis=0) for valence, mask in self.valences.items()},
            _RIGHT: right,
            _RIGHT_CLASS: right_class * (trials // len(answers.class_winner)),
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
        yield Comparison((_RIGHT,), classes, (macro,), cost)
        macro = _macro("zero_shot_accuracy", "macro", trials)
        yield Comparison((_RIGHT_CLASS,), classes, (macro,), cost)
        micro = _share("zero_shot_accuracy", "micro", trials)
        yield Comparison((_RIGHT_CLASS,), seen, (micro,), cost)


def compared_tests(tests: TridentTests, sides: Mapping[str, TridentAnswers]) -> Compared:
    """Return the scores of each side's answers, and what is compared of them.

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


def _share(metric: str, definition: str, tests: int) -> Reading:
    """Read the share of all tests of all images."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        trials = np.broadcast_to(tests * totals.sum(axis=-1), sums.shape[:-1])
        return shares(sums.sum(axis=-1), trials).mean(axis=-1)

    return Reading(metric, definition, value, disparity=False)


def _gap(tests: int) -> Reading:
    """Read the largest minus the smallest share of a group."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        return parity_differences(sums, tests * totals).mean(axis=-1)

    return Reading("parity_difference", "max_minus_min", value)


def _macro(metric: str, definition: str, tests: int) -> Reading:
    """Read the mean of the shares over the groups that are not empty."""

    def value(sums: NDArray[Any], totals: NDArray[Any]) -> NDArray[np.float64]:
        trials = np.broadcast_to(tests * totals, sums.shape)
        return mean_shares(sums, trials).mean(axis=-1)

    return Reading(metric, definition, value, disparity=False)
