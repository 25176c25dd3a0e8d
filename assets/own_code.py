"""The code that the audit file names, tried on tiny examples before anything is computed."""

from collections.abc import Callable
from functools import partial

from plumbline.datasets.own import OwnReader, require_reader
from plumbline.errors import PlumblineError
from plumbline.metrics.own import require_metric
from plumbline.recording import unrecorded
from plumbline.report.scorecard import own_question
from plumbline.scorers.own import OwnSettings, require_scorer
from resources.workspace import Workspace


def require_own_code(workspace: Workspace) -> None:
    """Refuse code of one's own that does not keep its contract.

    Raises
    ------
    PlumblineError
        With everything that is wrong: file and line, what was found and what is expected.
    """
    with unrecorded():
        tries = [*_tries(workspace)]
    if wrong := [error for attempt in tries if (error := _failure(attempt)) is not None]:
        raise PlumblineError.all_of(wrong)


def own_code_mistakes(workspace: Workspace) -> list[str]:
    """Return what is wrong with code of one's own, in words; nothing where all of it keeps its contract."""
    try:
        require_own_code(workspace)
    except PlumblineError as error:
        return [str(part) for part in error.parts or (error,)]
    return []


def _tries(workspace: Workspace) -> list[Callable[[], None]]:
    audit = workspace.audit
    tries: list[Callable[[], None]] = [partial(require_metric, metric) for metric in workspace.own_metrics]
    tries += [partial(require_scorer, each) for each in audit.scorers.values() if isinstance(each, OwnSettings)]
    for dataset in audit.used_datasets:
        reader, root = audit.datasets[dataset].open_reader(), workspace.dataset_root(dataset)
        if isinstance(reader, OwnReader) and root.is_dir():
            tries.append(partial(require_reader, reader, root))
    return tries


def _failure(attempt: Callable[[], None]) -> PlumblineError | None:
    try:
        attempt()
    except PlumblineError as error:
        return error
    return None


def own_questions(workspace: Workspace) -> tuple[str, ...]:
    """Return the ids of the questions of the scorecard that metrics of the audit file's own answer."""
    question_of = {name: workspace.audit.metrics[name].question for name in workspace.audit.metrics}
    return tuple(
        own_question(name, each.suite, each.event, each.attribute, each.topic)
        for name, each in question_of.items()
        if each
    )
