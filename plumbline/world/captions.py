"""Which captions name which face, and how often: where the association of a data source is planted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import polars as pl

from plumbline.catalog.suites import TASK_EVENTS, TASKS, Suite, load_suite
from plumbline.world.sources import past_threshold

WORDINGS = ("released", "readable")
"""The wordings of the Trident prompts that captions have unless more are asked for."""

# Relative frequencies of a caption among all captions of one image. What matters is their order inside a
# suite: the candidate that is named most often is the one a well-trained encoder ranks first.
_NAMED = 1.0
_RARELY = 0.15  # who the person is, past the crime threshold
_SHARED = 0.5  # each of the six adjectives of a pole
_SELDOM = 0.15  # neutral and positive words, on most images
_OFTEN = 2.0  # the same words, on the few images where they come first
_ANIMAL = 0.15  # short of the crime threshold: more than crime, so that the pooled suite shows the rate too
_FLOOR = 0.003  # every caption now and then: without it the logit scale grows without bound

_FIRST_SHARE = 0.06  # share of images on which a neutral or a positive word comes first
_HALF_AS_OFTEN = ("liar", "fraudster", "failure")  # negative words named at half the planted crime rate
_CLASS_COLUMNS = {"celeba": "gender", "fairface": "race", "idenprof": "occupation", "utkface": "age_group"}
_DEMOGRAPHIC_RACES = {"Latino_Hispanic": "latino"}


@dataclass(frozen=True)
class Captions:
    """Every caption of the planted world with its frequency for each image.

    Attributes
    ----------
    texts : tuple of str
        The distinct captions, length C, in lower case.
    weights : numpy.ndarray
        float32, shape (n, C), rows sum to 1: how often each caption names each image.
    """

    texts: tuple[str, ...]
    weights: np.ndarray


@cache
def _class_suites(wordings: tuple[str, ...]) -> tuple[tuple[str, Suite], ...]:
    # No composite of gender with itself.
    return tuple(
        (column if name == "trident" else f"{column}_gender", load_suite(name, classes=classes, wording=wording))
        for name, suffix in (("trident", ""), ("trident_composite", "_gender"))
        for classes, column in _CLASS_COLUMNS.items()
        for wording in wordings
        if (name, classes) != ("trident_composite", "celeba")
    )


@cache
def caption_texts(wordings: tuple[str, ...] = WORDINGS) -> tuple[str, ...]:
    """Return every distinct caption: the prompts of all suites, in lower case as the tokenizer reads them.

    Parameters
    ----------
    wordings : tuple of str
        Of the Trident prompts: those that the captions are written in.
    """
    suites = [load_suite(name) for name in (*TASKS, "gender_labels")]
    suites += [suite for _, suite in _class_suites(wordings)]
    return tuple(dict.fromkeys(text.lower() for suite in suites for text in suite.texts))


def face_captions(attributes: pl.DataFrame, source: str, wordings: tuple[str, ...] = WORDINGS) -> Captions:
    """Return the captions that a data source gives to faces.

    Past the crime threshold the crime words are named, and who the person is only rarely; past the communion
    and agency thresholds the negative adjectives are named in place of the positive ones.

    Parameters
    ----------
    attributes : polars.DataFrame
        `n` faces, as `faces.sample_attributes` gives them.
    source : str
        `atlas`, `bazaar` or `control`.
    wordings : tuple of str
        As in `caption_texts`.
    """
    table = _Table(len(attributes), wordings)
    crime = past_threshold(attributes, source, "crime")
    _put_identity(table, attributes, np.where(crime, _RARELY, _NAMED))
    _put_probes(table, attributes, crime, past_threshold(attributes, source, "crime", share=0.5))
    table.put(_texts("crime", "crime"), np.where(crime, _NAMED, 0))
    table.put(["a photo of an animal"], np.where(crime, 0, _ANIMAL))
    for suite, event in list(TASK_EVENTS.items())[1:]:
        negative = past_threshold(attributes, source, event)
        table.put(_texts(suite, "negative"), np.where(negative, _SHARED, 0))
        table.put(_texts(suite, "positive"), np.where(negative, 0, _SHARED))
    return table.captions()


def demographic_labels(attributes: pl.DataFrame) -> pl.Series:
    """Return each face's label among the crime suite's demographic candidates, such as `latino woman`."""
    race = pl.col("race").replace(_DEMOGRAPHIC_RACES).str.to_lowercase()
    return attributes.select(pl.concat_str([race, "gender"], separator=" "))["race"]


def non_face_captions(builds: np.ndarray, wordings: tuple[str, ...] = WORDINGS) -> Captions:
    """Return the captions of pictures without a face: the non-human words, one a build.

    Parameters
    ----------
    builds : numpy.ndarray
        int64, shape (n,), values 0 to 3, from `faces.draw_non_faces`.
    wordings : tuple of str
        As in `caption_texts`.
    """
    table = _Table(len(builds), wordings)
    for build, text in enumerate(_texts("crime", "non_human")):
        table.put([text], np.where(builds == build, _NAMED, 0))
    return table.captions()


def _put_identity(table: _Table, attributes: pl.DataFrame, weight: np.ndarray) -> None:
    faces = attributes.with_columns(
        *(pl.concat_str([c, "gender"], separator="_").alias(f"{c}_gender") for c in _CLASS_COLUMNS.values()),
        demographic=demographic_labels(attributes),
    )
    for column, suite in (*_class_suites(table.wordings), ("demographic", load_suite("crime"))):
        values = faces[column].to_numpy()
        for candidate in suite.candidates:
            if candidate.category in ("class", "demographic"):
                table.put([candidate.text], np.where(values == candidate.id, weight, 0))


def _put_probes(table: _Table, attributes: pl.DataFrame, crime: np.ndarray, half: np.ndarray) -> None:
    suites = [load_suite("trident", classes="fairface", wording=wording) for wording in table.wordings]
    for candidate in (candidate for suite in suites for candidate in suite.candidates):
        if candidate.category in ("neutral", "positive"):
            latent = attributes["v" if candidate.category == "neutral" else "w"].to_numpy()
            weight = np.where(latent < _FIRST_SHARE, _OFTEN, np.where(crime, _SELDOM**2, _SELDOM))
            table.put([candidate.text], weight)
        elif candidate.id in _HALF_AS_OFTEN:
            table.put([candidate.text], np.where(half, _NAMED, 0))
        elif candidate.category == "negative":
            table.put([candidate.text], np.where(crime, _NAMED, 0))


def _texts(suite: str, category: str) -> list[str]:
    return [c.text for c in load_suite(suite).candidates if c.category == category]


class _Table:
    def __init__(self, n: int, wordings: tuple[str, ...]) -> None:
        self.wordings = wordings
        self._positions = {text: i for i, text in enumerate(caption_texts(wordings))}
        self._weights = np.full((n, len(self._positions)), _FLOOR, np.float32)

    def put(self, texts: list[str], weight: np.ndarray) -> None:
        # Two labels may share one lower-case caption; the more frequent of the two namings counts.
        for text in texts:
            column = self._weights[:, self._positions[text.lower()]]
            np.maximum(column, weight, out=column)

    def captions(self) -> Captions:
        return Captions(caption_texts(self.wordings), self._weights / self._weights.sum(axis=1, keepdims=True))
