"""Rendering the pages and chapters of a large report in parallel processes."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from plumbline.concurrency import usable_cores
from plumbline.report.chapter import Part
from plumbline.report.chapters import CHAPTERS
from plumbline.report.figures.canvas import Drawn, Picture
from plumbline.report.inputs import ReportInputs
from plumbline.report.pages import DatasetPage, dataset_page

LARGE = 50_000
"""Rows of a metric table from which processes, which take some seconds to start, are faster."""

_worker_inputs: tuple[pl.DataFrame, ReportInputs] | None = None


def pages_and_parts(table: pl.DataFrame, inputs: ReportInputs) -> tuple[list[DatasetPage], list[list[Part]]]:
    """Return a page for every dataset and the parts of every chapter, in their order.

    Drawing holds the interpreter's lock, so that a large report is rendered in several processes, and a small one in
    this. The result is the same.
    """
    jobs: list[tuple[str, int]] = [("page", i) for i in range(len(inputs.datasets))]
    jobs += [("chapter", i) for i in range(len(CHAPTERS))]
    workers = min(usable_cores(), len(jobs))
    # A worker of a cluster, such as one of Dask's, may be a process that must not have any of its own.
    if table.height < LARGE or workers < 2 or multiprocessing.current_process().daemon:
        results = [_render(table, inputs, job) for job in jobs]
    else:
        spawn = multiprocessing.get_context("spawn")
        # Passed in a file: arguments go through a pipe, and a worker that dies before it has read a full pipe would
        # block this process forever.
        with TemporaryDirectory() as folder:
            path = Path(folder) / "given"
            path.write_bytes(ForkingPickler.dumps((table, inputs)))
            with ProcessPoolExecutor(workers, spawn, initializer=_initialise_worker, initargs=(path,)) as pool:
                results = list(pool.map(_render_in_worker, jobs))
    return results[: len(inputs.datasets)], results[len(inputs.datasets) :]


def _initialise_worker(path: Path) -> None:
    global _worker_inputs
    _worker_inputs = ForkingPickler.loads(path.read_bytes())
    # A figure is many objects in reference cycles. The garbage collector would scan those of a page repeatedly, which
    # takes a quarter of the time; here it runs once per page, afterwards.
    gc.freeze()
    gc.disable()


def _render_in_worker(job: tuple[str, int]) -> Any:
    if _worker_inputs is None:
        raise RuntimeError("the worker process was not initialised")
    result = _without_figures(_render(*_worker_inputs, job))
    gc.collect()
    return result


def _render(table: pl.DataFrame, inputs: ReportInputs, job: tuple[str, int]) -> Any:
    kind, index = job
    if kind == "page":
        return dataset_page(table, inputs, inputs.datasets[index])
    return CHAPTERS[index].parts(table, inputs)


def _without_figures(value: Any) -> Any:
    """Replace every picture, at any depth, by its SVG."""
    if isinstance(value, Picture):
        return Drawn(value.name, value.title, value.description, value.svg)
    if isinstance(value, list | tuple):
        return type(value)(_each(value))
    # Listings and summaries hold no picture, and frames would only be copied.
    if dataclasses.is_dataclass(value) and type(value).__name__.endswith(("Page", "Part")):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **dict(zip(fields, _each(fields.values()))))  # type: ignore[type-var]
    return value


def _each(values: Iterable[Any]) -> list[Any]:
    return [_without_figures(value) for value in values]
