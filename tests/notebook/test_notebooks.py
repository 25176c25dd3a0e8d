"""The notebooks run from beginning to end, and show what they say."""

import runpy

import pytest

from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.metrics.evidence import too_weak
from resources.checkout import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def run(name):
    declare_missing_operators()
    return runpy.run_path(str(PROJECT / "examples" / f"{name}.py"))


def test_own_data():
    shown = run("own_data")
    audit = shown["audit"]
    assert audit.findings and audit.scorecard().to_dict()
    by_gender = audit.table.filter(metric="outcome_proportion", event="crime", attribute="gender")
    assert by_gender["n"].sum() == 292, "unknown ones are left out of that attribute alone"
    assert audit.table.filter(metric="outcome_proportion", event="crime", attribute="race")["n"].sum() == 300
    assert all(path.is_file() for path in shown["written"])


def test_training_loop():
    shown = run("training_loop")
    assert len(shown["audits"]) == 3 and shown["model"].training
    assert [numbers["step"] for numbers in shown["logged"]] == [4, 8, 12]
    drawn = shown["chart"].to_dict()
    assert len(drawn["layer"]) == 2 and shown["disparity"].height == 3
    assert shown["disparity"]["q"].min() < 0.05 and shown["disparity"]["ci_low"].is_finite().all()
    for audit in shown["audits"]:
        assert audit.table.filter(metric="zero_shot_accuracy").height and too_weak(audit.table).is_empty()
    assert set(shown["audits"][-1].diff(shown["audits"][0])["compared"]) >= {"paired"}
