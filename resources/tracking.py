"""MLflow: one run a cell and condition, found again by its tag, and one model a checkpoint, over the plain client."""

import base64
import fcntl
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.digests import digest_json
from plumbline.provenance.tracked_numbers import ON_JUDGED, sections, tracked_name
from resources.workspace import Workspace

# Before the first import of mlflow, which happens in functions: nothing is sent anywhere, and only warnings are said.
for _name, _value in (
    ("MLFLOW_DISABLE_TELEMETRY", "true"),
    ("DO_NOT_TRACK", "true"),
    ("MLFLOW_LOGGING_LEVEL", "WARNING"),
    # MLflow's own are 120 s and 7: a server that hangs would hold an audit for a quarter of an hour a cell.
    ("MLFLOW_HTTP_REQUEST_TIMEOUT", "20"),
    ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"),
):
    os.environ.setdefault(_name, _value)

EXPERIMENT = "plumbline"
CELL_TAG, FORM_TAG, WEIGHTS_TAG = "plumbline.cell", "plumbline.form", "plumbline.checkpoint_sha256"
SHOWS_TAG = "plumbline.shows"
"""What a run shows: a `checkpoint`, a `mitigation` or an `instruction` of one, or an `audit`."""
_FORM = "5"
"""What a run holds, and how it is named: one of an earlier form is replaced."""
# Of one request: all that it may hold, and how many parameters of these.
_MOST, _MOST_PARAMETERS = 1000, 100
_VIEW = "plumbline-3"
"""Id of the saved view of the list of runs; a new one gets a new number, so that a person's own edit of it stays."""
_TRAINING_PAGES = "workflowType=machine_learning"
"""Without it in an address MLflow shows its pages for chat traces beside the runs."""
# Of a curve: enough to see it. A store writes each point.
_MOST_POINTS = 500
# After a store failed it is not asked for so long: the cells of an audit do not each wait for the same time-outs.
_REST_S = 60.0
_TAGS_OF_THE_NEWEST_RUN = {"plumbline.dagster_run", "mlflow.note.content"}
# Without it MLflow shows its pages for chat traces instead of metrics and comparisons.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
_VIEW_TAG = "mlflow.sharedViewState."
_DATASET_DIGITS = 12
_OLDEST_FIRST = {"field_name": "creation_time", "ascending": True}


@dataclass(frozen=True)
class TrackedModel:
    """A checkpoint, which MLflow's page of models compares with others.

    Attributes
    ----------
    name : str
        Its id in the audit file.
    weights : str
        Digest of its weights: other weights of the same name are another model.
    dataset, dataset_digest : str
        What the numbers of the scorecard were measured on.
    parameters : mapping of str to str
    """

    name: str
    weights: str
    dataset: str
    dataset_digest: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrackedCell:
    """What is tracked of one cell.

    Attributes
    ----------
    cell : str
        Identity of the content: the same cell is the same MLflow run.
    model : TrackedModel, optional
        The checkpoint whose numbers of the scorecard they are; None of one that was changed, by a mitigation say.
    parameters, tags : mapping of str to str
    headlines : mapping of str to float
        The few numbers of the scorecard, by question, such as
        `Crime labels by race: percent more often`; the model has them as well.
    metrics : mapping of str to float
        Finite numbers for charts; keys are readable, such as `max_skew/race/crime`.
    curves : mapping of str to sequence of float
        What changes over the steps of a training, such as its losses.
    files : mapping of str to bytes
        Artifact path to content: tables, figures, parameters.
    """

    cell: str
    name: str
    model: TrackedModel | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    headlines: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, float]:
        """Return the numbers that its run shows: of a curve the last point that is written."""
        last = {key: curve[_steps(curve)[-1]] for key, curve in self.curves.items() if len(curve)}
        # Where a store keeps zero, it keeps no sign.
        return {key: float(value) + 0.0 for key, value in {**self.headlines, **self.metrics, **last}.items()}


class TrackedRun(NamedTuple):
    """The MLflow run of a cell: its id, whether it was written now, and the digest of its numbers."""

    run: str
    written: bool
    numbers: str


class TrackingUnavailable(Exception):
    """The tracking store could not be reached or written; the computation is not lost, the run can be sent later."""


class Tracking:
    """Writes cells to MLflow."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._failed: tuple[float, TrackingUnavailable] | None = None
        self._experiment: str | None = None
        self._models: dict[tuple[str, str], str] = {}

    def client(self) -> Any:
        """Return a client of the store; set-up of a fresh SQLite store happens here, once."""
        from mlflow import MlflowClient

        return MlflowClient(self._workspace.tracking_uri)

    def experiment(self) -> str:
        """Return the id of the experiment, made on first use.

        Raises
        ------
        TrackingUnavailable
            If the store cannot be used.
        """
        with self._resting_on_error():
            if self._experiment is None:
                self._experiment = self._found_or_made()
            return self._experiment

    def _found_or_made(self) -> str:
        client = self.client()
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment:
            for tag, view in {} if f"{_VIEW_TAG}{_VIEW}" in experiment.tags else _views().items():
                client.set_experiment_tag(experiment.experiment_id, tag, view)
            return str(experiment.experiment_id)
        local = self._workspace.tracking_uri.startswith("sqlite:")
        location = self._workspace.tracking_artifacts.as_uri() if local else None
        return str(client.create_experiment(EXPERIMENT, artifact_location=location, tags=_EXPERIMENT_TAGS | _views()))

    def runs_page(self) -> str:
        """Return where a browser finds the runs, their headline metrics first; raises as `experiment` does."""
        return f"{self._page('runs')}&viewStateShareKey={_VIEW}"

    def run_page(self, run: str) -> str:
        """Return where a browser finds a run; raises as `experiment` does."""
        return self._page(f"runs/{run}")

    def _page(self, what: str) -> str:
        return f"{self._workspace.tracking_page}/#/experiments/{self.experiment()}/{what}?{_TRAINING_PAGES}"

    def write(self, cell: TrackedCell) -> TrackedRun:
        """Write a cell's run, or find the finished run that already has this content.

        Raises
        ------
        TrackingUnavailable
            If the store cannot be used, or could not a moment ago. The next delivery deletes what is half written.
        """
        with self._resting_on_error():
            return self._write(cell)

    @contextmanager
    def _resting_on_error(self) -> Iterator[None]:
        if self._failed is not None and time.monotonic() < self._failed[0] + _REST_S:
            raise TrackingUnavailable(*self._failed[1].args)
        try:
            with _unavailable_on_error():
                yield
        except TrackingUnavailable as error:
            self._failed = (time.monotonic(), error)
            self._experiment = None
            self._models.clear()
            raise
        self._failed = None

    def _write(self, cell: TrackedCell) -> TrackedRun:
        client, experiment = self.client(), self.experiment()
        whole = []
        for earlier in self._runs_of(client, experiment, cell):
            if _is_whole(earlier, cell):
                whole.append(earlier)
            else:  # of an earlier form, with other numbers than the lake's, or half written by what was killed
                client.delete_run(earlier.info.run_id)
        if whole:
            kept = _kept(client, whole)
            for name in _TAGS_OF_THE_NEWEST_RUN & set(cell.tags):
                client.set_tag(kept, name, cell.tags[name])
            return TrackedRun(kept, False, _digest(cell.numbers))
        tags = {CELL_TAG: cell.cell, FORM_TAG: _FORM, **cell.tags}
        run = client.create_run(experiment, run_name=cell.name, tags=tags).info.run_id
        model = None if cell.model is None else self._model(client, experiment, cell.model)
        self._log(client, run, cell, model)
        client.set_terminated(run, status="FINISHED")
        # Another process may have written the same at the same time: of both the one that ended first is kept.
        whole = [one for one in self._runs_of(client, experiment, cell) if _is_whole(one, cell)]
        kept = _kept(client, whole) if whole else str(run)
        return TrackedRun(kept, kept == run, _digest(cell.numbers))

    @staticmethod
    def _runs_of(client: Any, experiment: str, cell: TrackedCell) -> Sequence[Any]:
        runs: Sequence[Any] = client.search_runs([experiment], f"tags.`{CELL_TAG}` = '{cell.cell}'")
        return runs

    def changed(self, runs: Mapping[str, str]) -> dict[str, str]:
        """Return the runs that are not as they were written, each with what is wrong with it.

        Parameters
        ----------
        runs : mapping of str to str
            Id -> digest of the numbers, as `write` returned them.

        Raises
        ------
        TrackingUnavailable
            If the store cannot be used.
        """
        from mlflow.exceptions import MlflowException

        gone = "is not there any more"
        file = self._workspace.tracking_file
        if not runs or (file is not None and not file.exists()):
            return dict.fromkeys(runs, gone)  # a client would make a store
        wrong = {}
        with self._resting_on_error():
            client = self.client()
            for run, numbers in runs.items():
                try:
                    kept = client.get_run(run)
                except MlflowException as error:
                    if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                        raise
                    wrong[run] = gone
                    continue
                if kept.info.lifecycle_stage != "active":
                    wrong[run] = "was deleted"
                elif kept.info.status != "FINISHED" or _digest(kept.data.metrics) != numbers:
                    wrong[run] = "has other numbers than the lake"
        return wrong

    def _model(self, client: Any, experiment: str, model: TrackedModel) -> str:
        """Return the id of a checkpoint among MLflow's models, made on first use; its weights stay where they are."""
        key = (model.name, model.weights)
        if key not in self._models:
            named = f"name = '{model.name}' AND tags.`{WEIGHTS_TAG}` = '{model.weights}'"
            first = partial(client.search_logged_models, [experiment], named, max_results=1, order_by=[_OLDEST_FIRST])
            if not (models := first()):
                with self._alone():
                    models = first() or self._made(client, experiment, model, first)
            self._models[key] = str(models[0].model_id)
        return self._models[key]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process of this home at a time make what must be there once."""
        with (self._workspace.home / "mlflow.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _made(client: Any, experiment: str, model: TrackedModel, first: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        tags = {WEIGHTS_TAG: model.weights, "mlflow.model.is_external": "true"}
        created = client.create_logged_model(experiment, model.name, tags=tags, params=dict(model.parameters))
        client.finalize_logged_model(created.model_id, "READY")
        models = first()
        if models[0].model_id != created.model_id:  # a process of another home was quicker
            client.delete_logged_model(created.model_id)
        return models

    @staticmethod
    def _log(client: Any, run: str, cell: TrackedCell, model: str | None) -> None:
        from mlflow.entities import Dataset, DatasetInput, LoggedModelInput, Metric, Param
        from mlflow.exceptions import MlflowException

        of_model: dict[str, Any] = {}
        if cell.model is not None:
            of_model = {
                "model_id": model,
                "dataset_name": cell.model.dataset,
                "dataset_digest": cell.model.dataset_digest[:_DATASET_DIGITS],
            }
            dataset = Dataset(of_model["dataset_name"], of_model["dataset_digest"], "local", cell.model.dataset)
            inputs = [DatasetInput(dataset)], [LoggedModelInput(model)]
            try:
                client.log_inputs(run, *inputs)
            except MlflowException:  # another process was the first to write of this dataset, in between
                client.log_inputs(run, *inputs)
        parameters = [Param(key, value) for key, value in cell.parameters.items()]
        metrics = [Metric(key, value, 0, 0, **of_model) for key, value in cell.headlines.items()]
        metrics += [Metric(key, value, 0, 0) for key, value in cell.metrics.items()]
        metrics += [Metric(key, curve[step], 0, step) for key, curve in cell.curves.items() for step in _steps(curve)]
        while parameters or metrics:
            params, parameters = parameters[:_MOST_PARAMETERS], parameters[_MOST_PARAMETERS:]
            room = _MOST - len(params)
            client.log_batch(run, metrics=metrics[:room], params=params)
            metrics = metrics[room:]
        if cell.files:
            _log_files(client, run, cell.files)


def _is_whole(run: Any, cell: TrackedCell) -> bool:
    finished = run.info.status == "FINISHED" and run.data.tags.get(FORM_TAG) == _FORM
    return bool(finished and run.data.metrics == cell.numbers)


def _kept(client: Any, whole: Sequence[Any]) -> str:
    """Return the id of the first of a cell's runs that is whole, and delete the others."""
    first, *others = sorted(whole, key=lambda run: (run.info.end_time, run.info.run_id))
    for other in others:
        client.delete_run(other.info.run_id)
    return str(first.info.run_id)


def _digest(numbers: Mapping[str, float]) -> str:
    """Return the digest of a run's numbers; not every store keeps the sign of 0, and a person may log NaN."""
    return digest_json({name: repr(value + 0.0) for name, value in numbers.items()})


def _steps(curve: Sequence[float]) -> range:
    return range(0, len(curve), max(1, -(-len(curve) // _MOST_POINTS)))


@contextmanager
def _unavailable_on_error() -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        # SQLAlchemy puts advice to programmers before what the store said.
        lines = [line for line in str(error).splitlines() if not line.startswith("(raised as a result")]
        raise TrackingUnavailable(f"{type(error).__name__}: {' '.join(lines[:1])[:300]}") from error


def _log_files(client: Any, run: str, files: Mapping[str, bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        client.log_artifacts(run, folder)


def _views() -> dict[str, str]:
    """Return the saved views of the list of runs by the tag that MLflow's page keeps each in.

    `Checkpoints` has the numbers of the scorecard as columns, as first charts, and, of each dataset, the worst of the
    first question on top; `Mitigations` the same on the images on which mitigations are judged. A page that does not
    know the form of a view shows its own columns.
    """
    from plumbline.report.scorecard import QUESTIONS

    def names(kinds: Sequence[str]) -> list[str]:
        questions = [question for question in QUESTIONS if question.kind in kinds]
        # Every run has the smoothed skew; Max Skew is missing where a group never gets the label.
        measures = [
            measure
            for question in questions
            for measure in (question.measure, *[question.measure_smoothed] * (question.metric == "max_skew"))
        ]
        return [tracked_name(measure, blank=" ") for measure in measures]

    worst = tracked_name(QUESTIONS[0].measure_smoothed, blank=" ")
    checkpoints = _view(
        "Checkpoints", names(["encoder", "generator"]), sort=f"metrics.`{worst}`", by="dataset",
        runs=f"tags.`{SHOWS_TAG}` = 'checkpoint'",
    )  # fmt: skip
    judged = [f"{ON_JUDGED}/{name}" for name in names(["encoder"])]
    mitigations = _view(
        "Mitigations", judged, ["condition"], sort="tags.`mlflow.runName`",
        runs="tags.`plumbline.condition` != 'audit'", first=ON_JUDGED,
    )  # fmt: skip
    return {f"{_VIEW_TAG}{_VIEW}": checkpoints, f"{_VIEW_TAG}{_VIEW}-mitigations": mitigations}


def _view(
    name: str,
    metrics: Sequence[str],
    parameters: Sequence[str] = (),
    *,
    sort: str,
    runs: str,
    first: str = "Model metrics",
    by: str | None = None,
) -> str:
    columns = [f"metrics.`{metric}`" for metric in metrics]
    shown = [*(f"params.`{parameter}`" for parameter in parameters), *columns]
    keys = {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": by}]}
    state = {
        "searchFilter": runs,
        "orderByKey": sort,
        "orderByAsc": sort.startswith("tags"),
        # Values of different images are not sorted among each other.
        "groupBy": None if by is None else keys,
        "useGroupedValuesInCharts": False,
        "selectedColumns": shown,
        "columnOrder": ["attributes.`Run Name`", *shown],
        "columnWidths": {"attributes.`Run Name`": 260, **dict.fromkeys(columns, 260)},
        "compareRunCharts": [],
        # Charts of what is folded are not drawn: hundreds of them hold a browser for minutes.
        "compareRunSections": [
            {"uuid": each, "name": each, "display": each == first, "isReordered": True, "isGenerated": True}
            for each in dict.fromkeys([first, "Model metrics", *sections()])
        ],
        "isAccordionReordered": True,
        "runsHiddenMode": "FIRST_20_RUNS",
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    return json.dumps({"name": name, "createdAt": 0, "updatedAt": 0, "state": f"deflate;{packed}"})
