"""The code that an audit file names: its metrics with their versions, and all of it tried on tiny examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from plumbline.config.audit import Audit
from plumbline.datasets.own import OwnReader, require_reader
from plumbline.errors import PlumblineError
from plumbline.metrics.own import OwnMetric, require_metric
from plumbline.own_code import code_digest
from plumbline.recording import unrecorded
from plumbline.report.scorecard import own_question
from plumbline.scorers.own import OwnSettings, require_scorer


def own_metrics(audit: Audit, version: Callable[[str], str] = code_digest) -> tuple[OwnMetric, ...]:
    """Return the metrics of an audit file's own, each with the version of its code."""
    return tuple(_metric(audit, name, version) for name in audit.metrics)


def _metric(audit: Audit, name: str, version: Callable[[str], str] = code_digest) -> OwnMetric:
    entry = audit.metrics[name]
    return OwnMetric(name, entry.function, version(entry.function), entry.suites, entry.bounds, entry.resamples)


def own_questions(audit: Audit) -> tuple[str, ...]:
    """Return the ids of the questions of the scorecard that metrics of the audit file's own answer."""
    question_of = {name: audit.metrics[name].question for name in audit.metrics}
    return tuple(
        own_question(name, each.suite, each.event, each.attribute, each.topic)
        for name, each in question_of.items()
        if each
    )


def require_own_code(audit: Audit, folder_of: Callable[[str], Path]) -> None:
    """Refuse code of one's own that does not keep its contract.

    Parameters
    ----------
    folder_of : callable
        From a dataset of the audit file to its folder.

    Raises
    ------
    PlumblineError
        With everything that is wrong: file and line, what was found and what is expected.
    """
    if wrong := own_code_mistakes(audit, folder_of):
        raise PlumblineError.all_of(wrong)


def own_code_mistakes(audit: Audit, folder_of: Callable[[str], Path]) -> list[PlumblineError]:
    """Return what `require_own_code` refuses, each by itself; nothing where all of it keeps its contract."""
    with unrecorded():  # what is tried is no part of a result
        return [error for key, attempt in _tries(audit, folder_of) if (error := _failure(key, attempt)) is not None]


def _tries(audit: Audit, folder_of: Callable[[str], Path]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the key of the audit file that names each piece of code, and what tries it."""
    for name in audit.metrics:
        yield f"metrics.{name}.function", partial(_require_metric, audit, name)
    for name, settings in audit.scorers.items():
        if isinstance(settings, OwnSettings):
            yield f"scorers.{name}.function", partial(require_scorer, settings)
    for dataset in audit.used_datasets:
        yield f"datasets.{dataset}.reader", partial(_require_reader, audit, dataset, folder_of)


def _require_metric(audit: Audit, name: str) -> None:
    require_metric(_metric(audit, name))


def _require_reader(audit: Audit, dataset: str, folder_of: Callable[[str], Path]) -> None:
    reader = audit.datasets[dataset].open_reader()
    if isinstance(reader, OwnReader) and (folder := folder_of(dataset)).is_dir():
        require_reader(reader, folder)


def _failure(key: str, attempt: Callable[[], None]) -> PlumblineError | None:
    try:
        attempt()
    except PlumblineError as error:
        return error.restated(type(error), f"`{key}`: ", where=error.where)
    return None
