"""MLflow: one run a cell and condition, found again by its tag, over the plain client."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
CELL_TAG = "plumbline.cell"
_MOST_METRICS, _MOST_PARAMETERS = 1000, 100
# Of a curve: enough to see it. A store writes each point.
_MOST_POINTS = 500
# After a store failed it is not asked for so long: the cells of an audit do not each wait for the same time-outs.
_REST_S = 60.0
_TAGS_OF_THE_NEWEST_RUN = {"plumbline.dagster_run", "mlflow.note.content"}
# Without it MLflow shows its pages for chat traces instead of metrics and comparisons.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


@dataclass(frozen=True)
class TrackedCell:
    """What is tracked of one cell.

    Attributes
    ----------
    cell : str
        Identity of the content: the same cell is the same MLflow run.
    parameters, tags : mapping of str to str
    metrics : mapping of str to float
        Finite headline numbers; keys are readable, such as `max_skew/race/crime`.
    curves : mapping of str to sequence of float
        What changes over the steps of a training, such as its losses.
    files : mapping of str to bytes
        Artifact path to content: tables, figures, parameters.
    """

    cell: str
    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


class TrackedRun(NamedTuple):
    """The MLflow run of a cell: its id, and whether it was written now."""

    run: str
    written: bool


class TrackingUnavailable(Exception):
    """The tracking store could not be reached or written; the computation is not lost, the run can be sent later."""


class Tracking:
    """Writes cells to MLflow."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._failed: tuple[float, TrackingUnavailable] | None = None

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
            client = self.client()
            experiment = client.get_experiment_by_name(EXPERIMENT)
            if experiment:
                return str(experiment.experiment_id)
            local = self._workspace.tracking_uri.startswith("sqlite:")
            location = self._workspace.tracking_artifacts.as_uri() if local else None
            return str(client.create_experiment(EXPERIMENT, artifact_location=location, tags=_EXPERIMENT_TAGS))

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
            raise
        self._failed = None

    def _write(self, cell: TrackedCell) -> TrackedRun:
        client, experiment = self.client(), self.experiment()
        of_cell = f"tags.`{CELL_TAG}` = '{cell.cell}'"
        # What a killed process, or a store that went away, left half written.
        for left in client.search_runs([experiment], f"{of_cell} and attributes.status != 'FINISHED'"):
            client.delete_run(left.info.run_id)
        finished = client.search_runs([experiment], f"{of_cell} and attributes.status = 'FINISHED'", max_results=1)
        if finished:
            run = finished[0].info.run_id
            for name in _TAGS_OF_THE_NEWEST_RUN & set(cell.tags):
                client.set_tag(run, name, cell.tags[name])
            return TrackedRun(str(run), written=False)
        run = client.create_run(experiment, run_name=cell.name, tags={CELL_TAG: cell.cell, **cell.tags}).info.run_id
        self._log(client, run, cell)
        client.set_terminated(run, status="FINISHED")
        return TrackedRun(str(run), written=True)

    @staticmethod
    def _log(client: Any, run: str, cell: TrackedCell) -> None:
        from mlflow.entities import Metric, Param

        parameters = [Param(key, value) for key, value in cell.parameters.items()]
        metrics = [Metric(key, value, 0, 0) for key, value in cell.metrics.items()]
        metrics += [
            Metric(key, curve[step], 0, step)
            for key, curve in cell.curves.items()
            for step in range(0, len(curve), max(1, -(-len(curve) // _MOST_POINTS)))
        ]
        for first in range(0, max(len(parameters), 1), _MOST_PARAMETERS):
            client.log_batch(run, params=parameters[first : first + _MOST_PARAMETERS])
        for first in range(0, len(metrics), _MOST_METRICS):
            client.log_batch(run, metrics=metrics[first : first + _MOST_METRICS])
        for path, content in cell.files.items():
            _log_file(client, run, path, content)


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


def _log_file(client: Any, run: str, path: str, content: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(path).name
        file.write_bytes(content)
        parent = str(Path(path).parent)
        client.log_artifact(run, str(file), None if parent == "." else parent)
