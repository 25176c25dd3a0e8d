"""The pages and chapters of a large report, made side by side in processes of their own."""

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
"""Rows of a metric table from which it pays to start processes, which takes some seconds."""

_given: tuple[pl.DataFrame, ReportInputs] | None = None


def pages_and_parts(table: pl.DataFrame, inputs: ReportInputs) -> tuple[list[DatasetPage], list[list[Part]]]:
    """Return a page for every dataset and the parts of every chapter, in their order.

    Drawing is Python's own work and does not share a process; a small report is made in this one. The result is the
    same.
    """
    jobs: list[tuple[str, int]] = [("page", i) for i in range(len(inputs.datasets))]
    jobs += [("chapter", i) for i in range(len(CHAPTERS))]
    workers = min(usable_cores(), len(jobs))
    # A worker of a cluster, such as one of Dask's, may be a process that must not have any of its own.
    if table.height < LARGE or workers < 2 or multiprocessing.current_process().daemon:
        results = [_made(table, inputs, job) for job in jobs]
    else:
        spawn = multiprocessing.get_context("spawn")
        # Handed over in a file: what a new process gets as arguments goes through a pipe, and one that ends before it
        # has read a pipe that is full would be waited for for ever.
        with TemporaryDirectory() as folder:
            path = Path(folder) / "given"
            path.write_bytes(ForkingPickler.dumps((table, inputs)))
            with ProcessPoolExecutor(workers, spawn, initializer=_give, initargs=(path,)) as pool:
                results = list(pool.map(_made_apart, jobs))
    return results[: len(inputs.datasets)], results[len(inputs.datasets) :]


def _give(path: Path) -> None:
    global _given
    _given = ForkingPickler.loads(path.read_bytes())
    # A drawing is a great many objects in circles. The collector would walk all of a page's again and again, which
    # takes a quarter of the time; here it does so once a page, when they are done with.
    gc.freeze()
    gc.disable()


def _made_apart(job: tuple[str, int]) -> Any:
    if _given is None:
        raise RuntimeError("a process that draws was given nothing to draw from")
    result = _without_figures(_made(*_given, job))
    gc.collect()
    return result


def _made(table: pl.DataFrame, inputs: ReportInputs, job: tuple[str, int]) -> Any:
    kind, index = job
    if kind == "page":
        return dataset_page(table, inputs, inputs.datasets[index])
    return CHAPTERS[index].parts(table, inputs)


def _without_figures(value: Any) -> Any:
    """Replace every picture, however deep, by what it looks like."""
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
