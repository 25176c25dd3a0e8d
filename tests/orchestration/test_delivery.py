"""What is sent to MLflow later: only what it has not got, with the reason where it still cannot be written."""

import dagster as dg
import polars as pl
import pytest
import yaml
from rich.console import Console

from assets.partitions import GRID, LVLMS, cell_key
from orchestration.audit_commands import say_failed_deliveries, say_undelivered
from orchestration.delivery import Delivery, deliver_what_is_left
from orchestration.jobs import JOBS
from orchestration.status import print_mlflow
from plumbline.errors import StorageError
from resources.tracking import TrackingUnavailable
from resources.workspace import Workspace

ENTRIES = {
    "labeller": "mine",
    "datasets": {
        "one": {"reader": "fairface", "root": "nowhere"},
        "two": {"reader": "utkface", "root": "nowhere"},
        "people": {"reader": "socialcounterfactuals", "root": "nowhere"},
    },
    "encoders": {"mine": {"address": "local-dir:mine"}},
    "lvlms": {"seer": {"address": "local-dir:seer"}},
    "audit": [{"datasets": ["one", "two"], "suites": ["crime"]}],
    "generate": [{"datasets": ["people"], "prompts": ["characteristics"]}],
}


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(ENTRIES))
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")


def tracked(workspace, name, partition, run):
    table = pl.DataFrame({"mlflow_run": pl.Series([run], dtype=pl.String)})
    workspace.lake.write_table(name, table, partition=partition)


def definitions_of(workspace, asked, *, down):
    """The two assets, which say that they were asked and write what MLflow would have given them."""

    def deliver(context, name):
        asked.append((name, str(context.partition_key)))
        if down is None:
            tracked(workspace, name, str(context.partition_key), "r1")
        state = "written" if down is None else f"not delivered: {down}"
        return dg.MaterializeResult(metadata={"tracking": state})

    @dg.asset(partitions_def=GRID)
    def tracked_run(context: dg.AssetExecutionContext):
        return deliver(context, "tracked_run")

    @dg.asset(partitions_def=LVLMS)
    def tracked_answers(context: dg.AssetExecutionContext):
        return deliver(context, "tracked_answers")

    return dg.Definitions(
        [tracked_run, tracked_answers], jobs=[JOBS[name] for name in ("deliver_cell", "deliver_model")]
    )


@pytest.mark.parametrize("down", [None, "OperationalError: database is locked"])
def test_only_what_mlflow_has_not_got_is_sent(workspace, tmp_path, down):
    tracked(workspace, "tracked_run", cell_key("one", "mine"), None)
    tracked(workspace, "tracked_run", cell_key("two", "mine"), "r0")
    tracked(workspace, "tracked_answers", "seer", None)
    asked: list = []
    definitions = definitions_of(workspace, asked, down=down)
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        for name, keys in (("dataset", ["one", "two"]), ("encoder", ["mine"]), ("lvlm", ["seer"])):
            instance.add_dynamic_partitions(name, keys)
        found = deliver_what_is_left(definitions, instance, workspace)
        assert asked == [("tracked_run", "one|mine"), ("tracked_answers", "seer")]
        if down is None:
            assert found == Delivery(delivered=["one|mine", "seer"])
            assert deliver_what_is_left(definitions, instance, workspace) == Delivery()
        else:
            assert found == Delivery(refused=dict.fromkeys(["one|mine", "seer"], f"not delivered: {down}"))


def test_a_step_that_fails_before_it_sends_anything_is_not_mlflows_fault(workspace, tmp_path):
    tracked(workspace, "tracked_answers", "seer", None)

    @dg.asset(partitions_def=LVLMS)
    def tracked_answers():
        raise StorageError("the metrics of this model were computed on other answers")

    definitions = dg.Definitions([tracked_answers], jobs=[JOBS["deliver_model"]])
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        instance.add_dynamic_partitions("lvlm", ["seer"])
        found = deliver_what_is_left(definitions, instance, workspace)
    assert found == Delivery(failed={"seer": "the metrics of this model were computed on other answers"})


def test_what_is_said_of_a_delivery_names_who_is_at_fault(capsys):
    say_undelivered({"one|mine": "not delivered: locked"})
    assert "MLflow could not be written for one|mine;" in capsys.readouterr().err
    say_undelivered([f"cell-{number}" for number in range(5)])
    assert "for cell-0, cell-1, cell-2 and 2 more;" in capsys.readouterr().err
    say_failed_deliveries({"seer": "the metrics of this model were computed on other answers"})
    said = capsys.readouterr().err
    assert "Nothing could be sent to MLflow of seer:" in said and "MLflow could not be written" not in said


def test_a_home_without_cells_has_nothing_to_send(workspace, tmp_path):
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        assert deliver_what_is_left(dg.Definitions(), instance, workspace) == Delivery()


def test_what_mlflow_has_otherwise_is_sent_where_that_is_asked_for(workspace, tmp_path, monkeypatch):
    for dataset, run in (("one", "r0"), ("two", "r1")):
        table = pl.DataFrame({"mlflow_run": [run]})
        workspace.lake.write_table(
            "tracked_run", table, partition=cell_key(dataset, "mine"), details={"runs": {run: "d"}}
        )
    tracked(workspace, "tracked_answers", "seer", "of-an-earlier-version")
    wrong = {"r1": "has other numbers than the lake"}
    monkeypatch.setattr(
        "orchestration.delivery.Tracking.changed", lambda self, runs: {run: wrong[run] for run in runs if run in wrong}
    )
    told = Console(record=True, width=200)
    print_mlflow(workspace, told)
    assert told.export_text() == (
        "  MLflow: two|mine: run r1 has other numbers than the lake\n"
        "MLflow differs from the lake; `plumbline report --redeliver` sends it again\n"
    )
    asked: list = []
    definitions = definitions_of(workspace, asked, down=None)
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        for name, keys in (("dataset", ["one", "two"]), ("encoder", ["mine"]), ("lvlm", ["seer"])):
            instance.add_dynamic_partitions(name, keys)
        assert deliver_what_is_left(definitions, instance, workspace) == Delivery()
        assert deliver_what_is_left(definitions, instance, workspace, changed=True).delivered == ["two|mine"]
    assert asked == [("tracked_run", "two|mine")]


def test_mlflow_that_cannot_be_read_is_told_with_what_mends_it(workspace, monkeypatch):
    def refuse(self, runs):
        raise TrackingUnavailable("DatabaseError: database disk image is malformed")

    tracked(workspace, "tracked_answers", "seer", "r0")
    monkeypatch.setattr("orchestration.delivery.Tracking.changed", refuse)
    told = Console(record=True, width=500)
    print_mlflow(workspace, told)
    text = told.export_text()
    assert "malformed" in text and "`plumbline report --redeliver`" in text


def test_status_says_which_runs_mlflow_never_got(workspace):
    """The daemon delivers without a person who reads its warnings."""
    tracked(workspace, "tracked_run", cell_key("one", "mine"), None)
    tracked(workspace, "tracked_answers", "seer", None)
    console = Console(record=True, width=200)
    assert print_mlflow(workspace, console) is False
    said = console.export_text()
    assert "one|mine: was not sent" in said and "seer: was not sent" in said and "plumbline report" in said
    for name, partition in (("tracked_run", cell_key("one", "mine")), ("tracked_answers", "seer")):
        tracked(workspace, name, partition, "r0")
    assert print_mlflow(workspace, Console(record=True)) is True
