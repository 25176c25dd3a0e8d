"""One bad model never stops the others: it is named with all that is wrong with it."""

import json

import pytest
from rich.console import Console

from assets.plans import absent_datasets, plan_encoders, plan_generation
from assets.up_to_date import Present
from orchestration.audit_plan import AuditPlan
from orchestration.definitions import defs
from orchestration.status import print_status
from plumbline.catalog.studies import published_sizes
from plumbline.errors import PlumblineError
from resources.checkout import PROJECT
from resources.workspace import Workspace

GOOD = PROJECT / "plumbline" / "world" / "checkpoints" / "small-bazaar-3k"
MAP = {"index": "people.csv", "path": "photo", "columns": {"gender": "sex", "race": "origin"}}


def workspace(folder, encoders=("good", "bad"), **more):
    bad = folder / "bad"
    bad.mkdir(exist_ok=True)
    (bad / "config.json").write_text(json.dumps({"model_type": "siglip"}))
    staff = folder / "staff"
    staff.mkdir(exist_ok=True)
    (staff / "people.csv").write_text("photo,sex,origin\na.jpg,man,here\n")
    addresses = {"good": f"local-dir:{GOOD}", "bad": f"local-dir:{bad}"}
    audit = {
        "datasets": {"staff": {"reader": "folder", "root": str(staff), "map": MAP}},
        "encoders": {name: {"address": addresses[name]} for name in encoders},
        "labeller": encoders[0],
        "audit": [{"suites": ["crime"], "mitigations": []}],
    }
    (folder / "audit.yaml").write_text(json.dumps(audit | more))
    return Workspace(folder / "audit.yaml", folder / "home")


def everything_wrong(text):
    return all(
        part in text for part in ("3 things are wrong", "model.safetensors", "image processor", "files of a tokenizer")
    )


def test_an_encoder_that_cannot_be_read_is_left_aside_with_all_that_is_wrong(tmp_path):
    home = workspace(tmp_path)
    plan = AuditPlan(defs, home)
    plan.require_possible()
    assert list(plan.aside) == ["bad"] and everything_wrong(plan.aside["bad"])
    stages = {stage.job: stage.partitions for stage in plan.stages()}
    assert stages["encoders"] == ["good"] and stages["cells"] == ["staff|good"]
    planned = plan_encoders(home, absent_datasets(home))
    assert {cell.encoder for cell in planned.cells} == {"good"} and everything_wrong(planned.unreadable["bad"])


def test_status_and_report_say_what_is_wrong(tmp_path):
    home, console = workspace(tmp_path), Console(record=True, width=200)
    print_status(home, console=console)
    assert everything_wrong(console.export_text())
    reasons = {cell.model: cell.reason for cell in Present(home).standing.absent}
    of_checkpoint = "the checkpoint of encoder `bad` has no"
    assert reasons["bad"].split("; ") == [
        f"{of_checkpoint} safetensors weights, and no other format is opened",
        f"{of_checkpoint} files of an image processor",
        f"{of_checkpoint} files of a tokenizer",
    ]
    assert reasons["good"].startswith("not audited yet")


@pytest.mark.parametrize(
    ("encoders", "more"), [(("good", "bad"), {"strict": True}), (("bad",), {}), (("bad", "good"), {})]
)
def test_strict_audits_those_with_nothing_left_and_those_without_their_labeller_are_refused(tmp_path, encoders, more):
    with pytest.raises(PlumblineError) as refused:
        AuditPlan(defs, workspace(tmp_path, encoders, **more)).require_possible()
    assert everything_wrong(str(refused.value))


def test_strict_plans_are_refused(tmp_path):
    home = workspace(tmp_path, strict=True)
    with pytest.raises(PlumblineError, match="3 things are wrong"):
        plan_encoders(home, absent_datasets(home))


def asking(folder, models=("good-llava", "bad-llava"), **more):
    """A home whose audit asks two generative models, one of which has nothing but a configuration."""
    bad = folder / "bad-llava"
    bad.mkdir()
    (bad / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    staff = folder / "staff"
    staff.mkdir()
    (staff / "people.csv").write_text("photo,sex,origin\na.jpg,man,here\n")
    addresses = {"good-llava": f"local-dir:{GOOD.with_name('llava-bazaar')}", "bad-llava": f"local-dir:{bad}"}
    audit = {
        "datasets": {"staff": {"reader": "folder", "root": str(staff), "map": MAP}},
        "lvlms": {name: {"address": addresses[name]} for name in models},
        "scorers": {"offline": {"kind": "offline"}},
        "generate": [{"datasets": ["staff"], "prompts": ["describe"], "seeds": [0]}],
    }
    (folder / "audit.yaml").write_text(json.dumps(audit | more))
    return Workspace(folder / "audit.yaml", folder / "home")


def test_a_generative_model_that_cannot_be_read_is_left_aside_with_all_that_is_wrong(tmp_path):
    home, console = asking(tmp_path), Console(record=True, width=200)
    plan = AuditPlan(defs, home)
    plan.require_possible()
    assert list(plan.aside) == ["bad-llava"] and everything_wrong(plan.aside["bad-llava"])
    assert {stage.job: stage.partitions for stage in plan.stages()}["language"] == ["good-llava"]
    planned = plan_generation(home, absent={"staff": published_sizes()["idenprof"]})
    assert everything_wrong(planned.unreadable["bad-llava"])
    assert planned.reading == {"good-llava": "an image once for all prompts about it"}
    print_status(home, console=console)
    assert everything_wrong(console.export_text())
    reasons = {cell.model: cell.reason for cell in Present(home).standing.absent}
    assert len(reasons["bad-llava"].split("; ")) == 3 and reasons["good-llava"].startswith("not audited yet")


@pytest.mark.parametrize(("models", "more"), [(("good-llava", "bad-llava"), {"strict": True}), (("bad-llava",), {})])
def test_strict_audits_and_those_with_nobody_left_to_ask_are_refused(tmp_path, models, more):
    with pytest.raises(PlumblineError) as refused:
        AuditPlan(defs, asking(tmp_path, models, **more)).require_possible()
    assert everything_wrong(str(refused.value))
