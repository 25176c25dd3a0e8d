"""User-defined metrics: a function that returns one value per group, with bootstrap intervals.

An audit file names the function. Images are resampled within each group (whole clusters, where images come in
clusters). How far apart the groups lie, largest less smallest, has the interval and the permutation test of every
disparity (`plumbline.statistics.maxima.estimate_disparity`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.schema import Row, metric_frame
from plumbline.metrics.cell import Cell, RowPart, base_row, compute_rows
from plumbline.metrics.family import Family, ImageFamily, MetricSettings
from plumbline.own_code import OwnCode, broken, called, own_code
from plumbline.reasons import empty_groups_reason, group_size_reason, joined, small_groups_reason
from plumbline.statistics.cluster_permutation import ClusterPermutation
from plumbline.statistics.clusters import cluster_codes, few_clusters_reason
from plumbline.statistics.groups import Groups, attribute_groups
from plumbline.statistics.intervals import percentile_array
from plumbline.statistics.jackknife import Jackknife
from plumbline.statistics.maxima import Disparity, estimate_disparity
from plumbline.statistics.seeds import generator

VALUE, GAP = "own_metric", "own_metric_gap"
"""Metrics of the rows of every own metric, whose name is the `definition`: a group's value; largest less smallest."""
_ARGUMENTS = ("scores", "event", "codes", "groups")
_BLOCKS = 50


@dataclass(frozen=True)
class OwnMetric:
    """A metric of an audit file's own.

    Attributes
    ----------
    name : str
        Column `definition` of its rows.
    reference : str
        `module:function`.
    digest : str
        Version of its code.
    suites : tuple of str
        The suites that it reads; none means every suite with events.
    bounds : (float, float)
        In which every defined value lies.
    resamples : int
        At most so many draws of the bootstrap and of the test: the function is called for each.
    """

    name: str
    reference: str
    digest: str
    suites: tuple[str, ...] = ()
    bounds: tuple[float, float] = (0.0, 1.0)
    resamples: int = 1000


def own_family(metrics: Sequence[OwnMetric]) -> ImageFamily:
    """Return the family of some metrics of one's own; of none, the one that the graph of assets knows."""

    def compute(cell: Cell, *, settings: MetricSettings) -> pl.DataFrame:
        return own_rows(cell, metrics, settings=settings)

    return Family(name="own_metrics", needs=("outcomes",) if metrics else (), compute=compute)


def own_rows(cell: Cell, metrics: Sequence[OwnMetric], *, settings: MetricSettings) -> pl.DataFrame:
    """Return the rows of some metrics of one's own: of each event and attribute every group's value, and the gap."""
    return metric_frame(compute_rows(_parts(tuple(metrics), cell, settings)))


def _parts(metrics: tuple[OwnMetric, ...], cell: Cell, settings: MetricSettings) -> Iterator[RowPart]:
    # Draws are by position: sorted by id, results do not depend on the order of the records.
    order = cell.records["image_id"].arg_sort().to_numpy()
    for metric in metrics:
        for name, logits in cell.logits.items():
            if (metric.suites and name not in metric.suites) or not logits.suite.events:
                continue
            kept = order[cell.rows(name)[order]]
            labels, scores = cell.labels(name)[kept], logits.scores[:][kept].astype(np.float64)
            for event, categories in logits.suite.events.items():
                of_event = np.array([candidate.category in categories for candidate in logits.suite.candidates])
                for groups in attribute_groups(labels):
                    common = base_row(
                        cell, suite=name, suite_hash=logits.suite.hash, attribute=groups.attribute, event=event
                    )
                    clusters = cluster_codes(labels)
                    yield partial(_event_rows, metric, common, scores, of_event, groups, clusters, settings)


def _event_rows(
    metric: OwnMetric,
    common: Row,
    scores: NDArray[np.float64],
    event: NDArray[np.bool_],
    groups: Groups,
    clusters: NDArray[np.int64] | None,
    settings: MetricSettings,
) -> Iterator[Row]:
    known = groups.codes >= 0
    scores, codes, g = scores[known], groups.codes[known], len(groups.names)
    clusters = None if clusters is None else clusters[known]
    code = own_code(metric.reference)

    def values(rows: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.float64]:
        return checked_values(code, metric.bounds, scores[rows], event, of, g)

    everyone = np.arange(len(codes))
    value = values(everyone, codes)
    names = [str(common[key]) for key in ("model", "dataset", "suite", "event", "attribute")]
    drawing, permuting = (generator(settings.seed, *names, VALUE, metric.name, use) for use in ("bootstrap", "test"))
    draws, tests = (min(number, metric.resamples) for number in (settings.resamples, settings.permutations))
    resampled = np.empty((draws, g))
    for i in range(draws):
        rows = _resample(codes, clusters, g, drawing)
        resampled[i] = values(rows, codes[rows])
    intervals = percentile_array(value, resampled.T, confidence=settings.confidence)
    sizes = np.bincount(codes, minlength=g)
    few = few_clusters_reason(clusters)
    for i, group in enumerate(groups.names):
        columns = intervals[i].columns(group_size_reason(int(sizes[i]), settings.min_group), few)
        yield common | columns | {"metric": VALUE, "definition": metric.name, "group": group, "n": int(sizes[i])}
    if np.isfinite(value).sum() < 2:
        return
    small = joined(
        empty_groups_reason(sizes), small_groups_reason(groups.names, sizes.tolist(), settings.min_group), few
    )
    gap = {"metric": GAP, "definition": metric.name, "n": int(sizes.sum())}
    permutation = None if clusters is None else ClusterPermutation.of(codes, clusters)
    relabelled = _relabelled(codes, permutation, tests, permuting)
    estimate = estimate_disparity(
        value,  # type: ignore[arg-type]
        Disparity(_range, lambda drawn: drawn[:, None, :], most=metric.bounds[1] - metric.bounds[0]),
        resampled=resampled,  # type: ignore[arg-type]
        permuted=np.stack([values(rows, of) for rows, of in relabelled]),
        jackknife=lambda of: Jackknife.from_units(of(_without_blocks(values, codes, clusters))),  # type: ignore[arg-type]
        least_p=0.0 if permutation is None else permutation.least_gap_p,
        clusters=None if clusters is None else len(np.unique(clusters)),
        confidence=settings.confidence,
    )
    yield common | estimate.columns(small) | gap


def _resample(
    codes: NDArray[np.int64], clusters: NDArray[np.int64] | None, g: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return rows drawn with replacement: images within each group, or whole clusters."""
    if clusters is None:
        members = [np.flatnonzero(codes == i) for i in range(g)]
        return np.concatenate([rng.choice(each, len(each)) if len(each) else each for each in members])
    units = [np.flatnonzero(clusters == each) for each in np.unique(clusters)]
    return np.concatenate([units[i] for i in rng.integers(0, len(units), len(units))])


def _relabelled(
    codes: NDArray[np.int64], permutation: ClusterPermutation | None, permutations: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield rows and their groups as if groups did not differ: of single images, or of the blocks of clusters."""
    everyone = np.arange(len(codes))
    if permutation is None:
        for _ in range(permutations):
            yield everyone, rng.permutation(codes)
        return
    for drawn in permutation.draws(permutations, rng):
        for i, of_blocks in enumerate(drawn.labels):
            # In a place of another size the images of a block are thinned out or repeated.
            rows = everyone if drawn.weights is None else np.repeat(everyone, drawn.weights[i])
            yield rows, of_blocks[permutation.blocks[rows]]


def _without_blocks(
    values: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]],
    codes: NDArray[np.int64],
    clusters: NDArray[np.int64] | None,
) -> NDArray[np.float64]:
    """Return the (b, g) values without each of some blocks of images, or of clusters, for the acceleration of BCa."""
    rows = np.arange(len(codes))
    units = rows if clusters is None else np.unique(clusters, return_inverse=True)[1].reshape(-1)
    blocks = min(_BLOCKS, int(units.max(initial=0)) + 1)
    kept = [rows[units % blocks != i] for i in range(blocks)]
    return np.stack([values(each, codes[each]) for each in kept])


def _range(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the largest less the smallest of (..., g) values; nan where fewer than two are defined."""
    known = np.isfinite(values)
    largest = np.where(known, values, -np.inf).max(axis=-1)
    smallest = np.where(known, values, np.inf).min(axis=-1)
    return np.where(known.sum(axis=-1) > 1, largest - smallest, np.nan)


# --- The contract.


def checked_values(
    code: OwnCode,
    bounds: tuple[float, float],
    scores: NDArray[np.float64],
    event: NDArray[np.bool_],
    codes: NDArray[np.int64],
    groups: int,
) -> NDArray[np.float64]:
    """Return the (groups,) values of a function, which are numbers in its bounds or nan.

    Raises
    ------
    ConfigError
        If it fails, or gives something else.
    """
    call = f"called with scores {scores.shape}, event {event.shape}, codes {codes.shape}, groups {groups}"
    given = called(code, code.thing, scores, event, codes, groups, told=call)
    values = np.asarray(given)
    if values.dtype.kind not in "fiub" or values.shape != (groups,):
        shown = f"{type(given).__name__} of shape {values.shape} and dtype {values.dtype}"
        raise broken(code, "what it returns", found=shown, expected=f"an array of {groups} floats, one a group")
    values = values.astype(np.float64)
    outside = np.isinf(values) | (values < bounds[0] - 1e-9) | (values > bounds[1] + 1e-9)
    if outside.any():
        shown = ", ".join(f"{value:g}" for value in values[outside][:3])
        raise broken(code, "a value is out of its `bounds`", found=shown, expected=f"{bounds[0]:g} .. {bounds[1]:g}")
    return values


def require_metric(metric: OwnMetric) -> None:
    """Try a metric on a tiny planted example of three groups, one of them empty.

    Raises
    ------
    ConfigError
        If it is no function of (scores, event, codes, groups), or on the example fails, returns something else, has a
        value for a group without images or none for the others, depends on the order of the images, or does not follow
        when groups change places.
    """
    code = own_code(metric.reference)
    if not callable(code.thing):
        raise broken(code, "it is not a function", found=type(code.thing).__name__, expected=_signature())
    parameters = list(inspect.signature(code.thing).parameters.values())
    open_ended = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    by_position = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if not open_ended and (len(by_position) < len(_ARGUMENTS) or len(needed) > len(_ARGUMENTS)):
        shown = f"({', '.join(each.name for each in parameters)})"
        raise broken(code, "its arguments", found=shown, expected=_signature())
    rng = np.random.default_rng(0)
    scores, event = rng.normal(size=(60, 5)), np.array([False, True, False, False, True])
    codes = np.repeat([0, 1], 30)
    kept = scores.copy(), event.copy(), codes.copy()
    values = checked_values(code, metric.bounds, scores, event, codes, 3)
    if not (np.array_equal(scores, kept[0]) and np.array_equal(event, kept[1]) and np.array_equal(codes, kept[2])):
        raise broken(code, "it changes the arrays that it is given", expected="copies of its own")
    if np.isnan(values[:2]).any():
        raise broken(code, "it has no value for a group with images", found=values[:2], expected="two numbers")
    if not np.isnan(values[2]):
        raise broken(code, "it has a value for a group without images", found=values[2], expected="nan")
    shuffled = rng.permutation(len(codes))
    again = checked_values(code, metric.bounds, scores[shuffled], event, codes[shuffled], 3)
    if not np.allclose(again, values, equal_nan=True):
        raise broken(code, "it depends on the order of the images", found=again, expected=values)
    swapped = checked_values(code, metric.bounds, scores, event, 1 - codes, 3)
    if not np.allclose(swapped[[1, 0, 2]], values, equal_nan=True):
        raise broken(code, "groups that change places do not keep their values", found=swapped, expected=values)


def _signature() -> str:
    return (
        "a function of (scores, event, codes, groups): (n, m) float, (m,) bool, (n,) int from 0, a number; it returns "
        "one float a group, nan for a group without images"
    )


OWN_METRICS = own_family(())
