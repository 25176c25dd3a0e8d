"""`plumbline plan` as it is read: mistakes that an audit would meet late, and whether it would be refused."""

import math
import re

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from orchestration import planned
from orchestration.command_line import app
from plumbline.commands import terminal
from plumbline.errors import ConfigError
from plumbline.metrics.disparities import PlannedPower, planned_detectable

ENTRIES = {
    "labeller": "b32",
    "encoders": {"b32": {"address": "ViT-B-32-quickgelu/openai"}},
    "datasets": {"people": {"reader": "socialcounterfactuals", "root": "nowhere/at/all"}},
    "lvlms": {"far": {"endpoint": {"urls": ["http://127.0.0.1:9/v1"], "model": "far"}}},
    "audit": [],
    "generate": [{"datasets": ["people"], "prompts": ["characteristics"], "seeds": [0]}],
}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Return what runs the command on an audit file with changes."""
    monkeypatch.setenv("PLUMBLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLUMBLINE_AUDIT", "audit.yaml")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(terminal.console, "width", 200)

    def run(**changes):
        (tmp_path / "audit.yaml").write_text(yaml.safe_dump({**ENTRIES, **changes}))
        return CliRunner().invoke(app, ["plan", "--config", str(tmp_path / "audit.yaml")])

    return run


def test_annotations_with_a_bad_label_are_said_before_anything_is_read(plan, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("sheet,text_id,annotator,label\npersonality,k1,ann,maybe\n")
    ran = plan(language={"annotations": str(labels)})
    assert isinstance(ran.exception, ConfigError) and not ran.stdout
    assert ran.exception.where == f"{labels}, line 2, column label"
    assert (ran.exception.found, ran.exception.expected) == ("maybe", "0 (no) or 1 (yes)")


@pytest.mark.parametrize(
    ("limit", "code", "said"),
    [
        ({"rows": 10}, 2, [r"Above .* refuses it: rows: \d{3},\d{3} \(limit 10\)"]),
        ({"rows": 10**9}, 0, [r"Within generation\.limit of the audit file\."]),
        ({"hours": 2}, 0, [r"Within generation\.limit, but for the hours: .*"]),
        ({}, 0, []),
    ],
)
def test_what_the_limit_says_of_it_is_on_stdout(plan, limit, code, said):
    ran = plan(generation={"limit": limit})
    assert "answers, about" in ran.stdout
    verdict = [line for line in ran.stdout.splitlines() if "generation.limit" in line]
    assert len(verdict) == len(said) and all(map(re.fullmatch, said, verdict)), ran.stdout
    assert isinstance(ran.exception, ConfigError) if code else ran.exit_code == 0


@pytest.mark.parametrize(("audit", "told"), [([], False), ([{"suites": ["crime"]}], True)])
def test_encoders_are_told_of_where_some_are_asked(plan, audit, told):
    named = {} if audit else {"labeller": None, "encoders": {}}
    ran = plan(audit=audit, **named)
    assert ran.exit_code == 0, ran.exception
    assert ("images to embed" in ran.stdout) == ("To embed" in ran.stdout) == told
    assert "To generate" in ran.stdout


@pytest.mark.parametrize(("address", "said"), [("ViT-B-32-quickgelu/openai", "; "), ("RN50/openai", "; at least ")])
def test_disk_is_a_least_one_where_a_width_is_not_known(plan, address, said):
    ran = plan(audit=[{"suites": ["crime"]}], encoders={"b32": {"address": address}})
    assert re.search(rf"\){said}\d[\d.,]* [MG]B of disk for embeddings, logits and records", ran.stdout)


def test_what_an_audit_can_find_is_told_of_every_attribute(plan, monkeypatch):
    found = [
        PlannedPower("people", "race", (400, 300, 90), 0.634, 0.0912, 87, 0.05 / 87),
        PlannedPower("people", "gender", (20, 20), math.nan, 0.31, 87, 0.05 / 87),
        PlannedPower("people", "age", (80, 70), math.nan, 0.21, 87, 0.05 / 87),
    ]
    monkeypatch.setattr(planned, "planned_power", lambda cells, groups, **_: found)
    ran = plan(audit=[{"suites": ["crime"]}])
    rows = [
        line.split() for line in ran.stdout.splitlines() if line.strip().startswith("people | ") and "points" in line
    ]
    assert rows == [
        ["people", "|", "race", "3", "790", "90", "0.63", "9.1", "points"],
        ["people", "|", "gender", "2", "40", "20", "not", "told", "31", "points"],
        ["people", "|", "age", "2", "150", "70", "too", "few", "images", "21", "points"],
    ]
    assert "No skew is told where the smallest group expects fewer than 5 images" in " ".join(ran.stdout.split())
    assert "at p = 0.00057, which the correction of 87 tests requires" in " ".join(ran.stdout.split())


def test_where_permutations_keep_p_from_being_so_small_no_images_are_asked_for(plan, monkeypatch):
    none = PlannedPower("people", "race", (5000, 5000), math.nan, math.nan, 750, 0.05 / 750, 10_000)
    monkeypatch.setattr(planned, "planned_power", lambda cells, groups, **_: [none])
    said = " ".join(plan(audit=[{"suites": ["crime"]}]).stdout.split())
    assert "too few permutations too few permutations" in said and "too few images" not in said
    assert "raise `statistics.permutations` to 30,000, or ask less" in said
    sizes = np.array([5000, 5000])
    assert all(map(math.isnan, planned_detectable(sizes, rate=0.1, level=0.05 / 750, permutations=1_000)))
    assert all(map(math.isfinite, planned_detectable(sizes, rate=0.1, level=0.05 / 7, permutations=1_000)))
