"""What a caller gives a metric: labels in any container, predictions or counts of them, a seed or a generator."""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import MetricError, examples, suggestion
from plumbline.metrics.family import MetricSettings


def as_seed(seed: int | np.random.Generator) -> int:
    """Return a seed; a generator gives its next number.

    Raises
    ------
    MetricError
        If it is neither a whole number nor a generator.
    """
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**62))
    try:
        return operator.index(seed)
    except TypeError as error:
        raise MetricError(
            "a seed is a whole number or a generator", where="seed", found=repr(seed), expected="such as 0"
        ) from error


def as_generator(seed: int | np.random.Generator) -> np.random.Generator:
    """Return a generator: the one that is given, or a new one."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)


def draw_settings(interval: bool | MetricSettings, seed: int | np.random.Generator) -> MetricSettings:
    """Return the settings of an interval: those given, or the defaults.

    Raises
    ------
    MetricError
        If it is neither True nor settings.
    """
    if interval is not True and not isinstance(interval, MetricSettings):
        raise MetricError(
            "an interval is asked for with True or with settings",
            where="interval",
            found=repr(interval),
            expected="True, or MetricSettings(confidence=0.9)",
        )
    return replace(interval if isinstance(interval, MetricSettings) else MetricSettings(), seed=as_seed(seed))


def as_labels(groups: Any) -> list[Any]:
    """Return one label an image, None where there is none: of a list, array, or a column of polars or pandas.

    Raises
    ------
    MetricError
        If they are not one column.
    """
    shape = getattr(groups, "shape", None)
    if shape is not None and len(shape) != 1:
        raise MetricError("labels must be one an image", found=f"shape {tuple(shape)}", expected="(n,)")
    listed = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    return [None if is_missing(label) else label for label in listed]


def is_missing(label: Any) -> bool:
    """Return whether a label says that there is none: None, nan, and pandas' NA and NaT."""
    # nan is the one thing that differs from itself; of pandas' NA nothing is known, not even that.
    return label is None or type(label).__name__ in ("NAType", "NaTType") or bool(label != label)


class Counted(NamedTuple):
    """Counts of an event, (g,) or (e, g), and group sizes (g,)."""

    counts: Any
    totals: Any


def counted(
    events: Any, totals: Any = None, *, groups: Any = None, event: Collection[Any] | str | None = None
) -> Counted:
    """Return counts by group, of what a caller has.

    Parameters
    ----------
    events : (g,) or (e, g) int, or (n,) predictions
        Counts of the event by group, with `totals`; or what was predicted of each image, with `groups`.
    totals : (g,) int, optional
    groups : (n,) labels, optional
        An image without a label is in no group. Groups are in sorted order.
    event : collection or one prediction, optional
        Which predictions are the event; without it predictions are true or false.

    Raises
    ------
    MetricError
        If it is neither the one nor the other, or lengths differ.
    """
    if (totals is None) == (groups is None):
        raise MetricError(
            "counts need the sizes of the groups, and predictions the group of each image",
            found="both" if groups is not None else "neither",
            expected="(counts, totals), or (predictions, groups=labels)",
        )
    if groups is None:
        if np.asarray(totals).dtype.kind not in "iufb":
            raise MetricError(
                "sizes of groups must be numbers",
                found=repr(list(totals)[:3]),
                expected="(counts, totals), or groups=labels, by name",
            )
        return Counted(events, totals)
    happened, codes = is_event(events, event), label_places(groups)
    require_as_many(predictions=happened, groups=codes)
    known = codes >= 0
    size = int(codes.max(initial=-1)) + 1
    return Counted(np.bincount(codes[known & happened], minlength=size), np.bincount(codes[known], minlength=size))


def label_places(labels: Any) -> NDArray[np.int64]:
    """Return the place of each label among those that occur, sorted; -1 where there is none."""
    listed = as_labels(labels)
    names = sorted({label for label in listed if label is not None}, key=str)
    place = {name: i for i, name in enumerate(names)}
    return np.array([place.get(label, -1) for label in listed], dtype=np.int64)


def require_as_many(**columns: Any) -> None:
    """Raise MetricError unless columns are of equally many images."""
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{len(column)} {name}" for name, column in columns.items())
        raise MetricError(f"{_listed(columns)} must be of the same images", found=lengths, expected="as many")


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}"


def is_event(predictions: Any, event: Collection[Any] | str | None = None) -> NDArray[np.bool_]:
    """Return whether each of n predictions is the event; see `counted`."""
    values = as_labels(predictions)
    if event is not None:
        wanted = set(event) if isinstance(event, Collection) and not isinstance(event, str) else {event}
        _warn_of_absent(wanted, values)
        return np.array([value in wanted for value in values], dtype=bool)
    if any(value not in (0, 1) for value in values):
        raise MetricError(
            "predictions must say whether the event happened",
            found=", ".join(map(repr, dict.fromkeys(values)))[:80],
            expected="true or false an image; or name the predictions that are the event with `event`",
        )
    return np.array(values, dtype=bool)


def _warn_of_absent(event: set[Any], values: Sequence[Any]) -> None:
    """Warn where no image got any prediction of an event: it may be rare, or misspelt."""
    met = list(dict.fromkeys(values))
    if met and event and not event.intersection(met):
        names = sorted(map(str, event))
        warnings.warn(
            f"no image was predicted {' or '.join(map(repr, names))}, so that every count is 0; predictions are "
            f"{examples(map(repr, met))}{suggestion(names[0], met)}",
            stacklevel=_callers_level(),
        )


def _callers_level() -> int:
    """Return the `stacklevel` of the first caller outside this package, counted from the function that asks."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "plumbline":
        frame, level = frame.f_back, level + 1
    return level
