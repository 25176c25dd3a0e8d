"""One bad model never stops the others: it is named with all that is wrong with it."""

import json
import shutil

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


def bare(folder, model_type):
    """Return a folder that has nothing but a configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def of_other_sizes(folder, name, configuration, change):
    """Return a copy of a planted checkpoint whose configuration says other sizes than its weights have."""
    shutil.copytree(GOOD.with_name(name), folder)
    content = json.loads((folder / configuration).read_text())
    change(content)
    (folder / configuration).write_text(json.dumps(content))
    return folder


def workspace(folder, encoders=("good", "bad"), *, bad=None, **more):
    bad = bad or bare(folder / "bad", "siglip")
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


MISSING = ("model.safetensors", "image processor", "files of a tokenizer")


ALL_MISSING = (*MISSING, "no chat template")


def everything_wrong(text, parts=MISSING):
    return all(part in text for part in (f"{len(parts)} things are wrong", *parts))


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


def test_weights_of_other_sizes_are_named_before_a_model_is_loaded(tmp_path):
    config = "open_clip_config.json"
    bad = of_other_sizes(
        tmp_path / "bad", GOOD.name, config, lambda content: content["model_cfg"]["text_cfg"].update(context_length=40)
    )
    home, console = workspace(tmp_path, bad=bad), Console(record=True, width=200)
    home.home.mkdir(exist_ok=True)  # a look makes none
    said = (
        "1 weight(s) have another size",
        "positional_embedding: 48 x 64",
        "expected: 40 x 64, as open_clip_config.json",
    )
    plan = AuditPlan(defs, home)
    plan.require_possible()
    assert list(plan.aside) == ["bad"] and all(part in plan.aside["bad"] for part in said)
    # From here on it is known, and open_clip builds nothing.
    assert len(list(home.sizes.iterdir())) == 2
    assert plan_encoders(home, absent_datasets(home)).unreadable == plan.aside
    print_status(home, console=console)
    assert "positional_embedding: 48 x 64" in console.export_text()
    for damaged in (b"", b'{"sizes": {}, "digest": "0"}', b"[]"):
        for kept in home.sizes.iterdir():
            kept.write_bytes(damaged)
        assert plan_encoders(home, absent_datasets(home)).unreadable == plan.aside, "it is found anew"
    (bad / "tokenizer.json").unlink()
    together = plan_encoders(home, absent_datasets(home)).unreadable["bad"]
    assert everything_wrong(together, ("positional_embedding: 48 x 64", "files of a tokenizer"))


def test_weights_that_are_cut_short_are_named_before_a_model_is_loaded(tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(GOOD, bad)
    weights = bad / "open_clip_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    plan = AuditPlan(defs, workspace(tmp_path, bad=bad))
    plan.require_possible()
    assert "the weights are not complete" in plan.aside["bad"] and str(weights) in plan.aside["bad"]


def asking(folder, models=("good-llava", "bad-llava"), *, bad=None, thinking=None, **more):
    """A home whose audit asks two generative models, one of which has nothing but a configuration."""
    bad = bad or bare(folder / "bad-llava", "qwen3_vl")
    staff = folder / "staff"
    staff.mkdir()
    (staff / "people.csv").write_text("photo,sex,origin\na.jpg,man,here\n")
    addresses = {"good-llava": f"local-dir:{GOOD.with_name('llava-bazaar')}", "bad-llava": f"local-dir:{bad}"}
    audit = {
        "datasets": {"staff": {"reader": "folder", "root": str(staff), "map": MAP}},
        "lvlms": {name: {"address": addresses[name], "thinking": thinking} for name in models},
        "scorers": {"offline": {"kind": "offline"}},
        "generate": [{"datasets": ["staff"], "prompts": ["describe"], "seeds": [0]}],
    }
    (folder / "audit.yaml").write_text(json.dumps(audit | more))
    return Workspace(folder / "audit.yaml", folder / "home")


def test_a_generative_model_that_cannot_be_read_is_left_aside_with_all_that_is_wrong(tmp_path):
    home, console = asking(tmp_path), Console(record=True, width=200)
    plan = AuditPlan(defs, home)
    plan.require_possible()
    assert list(plan.aside) == ["bad-llava"] and everything_wrong(plan.aside["bad-llava"], ALL_MISSING)
    assert {stage.job: stage.partitions for stage in plan.stages()}["language"] == ["good-llava"]
    planned = plan_generation(home, absent={"staff": published_sizes()["idenprof"]})
    assert everything_wrong(planned.unreadable["bad-llava"], ALL_MISSING)
    assert planned.reading == {"good-llava": "an image once for all prompts about it"}
    print_status(home, console=console)
    assert everything_wrong(console.export_text(), ALL_MISSING)
    reasons = {cell.model: cell.reason for cell in Present(home).standing.absent}
    assert len(reasons["bad-llava"].split("; ")) == 4 and reasons["good-llava"].startswith("not audited yet")


@pytest.mark.parametrize(("models", "more"), [(("good-llava", "bad-llava"), {"strict": True}), (("bad-llava",), {})])
def test_strict_audits_and_those_with_nobody_left_to_ask_are_refused(tmp_path, models, more):
    with pytest.raises(PlumblineError) as refused:
        AuditPlan(defs, asking(tmp_path, models, **more)).require_possible()
    assert everything_wrong(str(refused.value), ALL_MISSING)


def of_any_size(content):
    content["text_config"]["vocab_size"] += 1


@pytest.mark.parametrize(
    ("spoil", "thinking", "parts"),
    [
        # The template is there, and puts the prompt nowhere: nobody knows before it is tried.
        (lambda bad: (bad / "chat_template.jinja").write_text("USER: hello A:"), None, ("one image",)),
        (lambda bad: None, False, ("thinking of model `bad-llava` cannot be switched off", "reads none of")),
        (
            lambda bad: (bad / "tokenizer.json").unlink(), True,
            ("embed_tokens.weight", "files of a tokenizer", "cannot be switched on"),
        ),
    ],
)  # fmt: skip
def test_what_stands_before_a_model_is_read_in_the_plan_and_one_does_not_stop_it(tmp_path, spoil, thinking, parts):
    several = len(parts) > 2
    bad = of_other_sizes(
        tmp_path / "bad-llava", "llava-bazaar", "config.json", of_any_size if several else lambda content: None
    )
    spoil(bad)
    home = asking(tmp_path, bad=bad, thinking=thinking)
    # The other one has no switch either: it is planned as it is.
    audit = json.loads(home.audit_path.read_text())
    del audit["lvlms"]["good-llava"]["thinking"]
    home.audit_path.write_text(json.dumps(audit))
    planned = plan_generation(home, absent={"staff": published_sizes()["idenprof"]})
    assert [one.model for one in planned.slices] == ["good-llava"] and list(planned.unreadable) == ["bad-llava"]
    assert all(part in planned.unreadable["bad-llava"] for part in parts)
    plan = AuditPlan(defs, home)
    plan.require_possible()
    assert plan.aside == planned.unreadable
    assert not several or everything_wrong(plan.aside["bad-llava"], parts)
