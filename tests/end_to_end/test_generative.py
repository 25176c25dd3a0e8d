"""A generative audit by the real command line: an endpoint that answers with poison, and a shipped model."""

import json
import re
import shutil
import signal
import time
from dataclasses import replace

import dagster as dg
import polars as pl
import pytest
import yaml
from fault_server import Reply, completion, serving
from homes import SHARED, Home, furnish, make_home

from assets.partitions import answers_key
from assets.slices import dataset_slices
from assets.up_to_date import Present
from orchestration.audit_plan import AuditPlan
from orchestration.definitions import build_definitions
from orchestration.job_run import run_job
from plumbline.recording import recording

CANARY = "sk-canary-0d9f3c51"
HOSTILE = "<script>alert(1)</script> =cmd|' /C calc'!A0 \x1b[31mred\u202egnirts lazy, rude, skilled"
DATASETS = {"faces": {"reader": "socialcounterfactuals", "root": "planted:socialcounterfactuals"}}
DESIGN = {
    "lvlms": ["model"],
    "datasets": ["faces"],
    "subsets": ["race_gender"],
    "occupations": ["chef"],
    "prompts": ["characteristics", "hiring"],
    "instructions": ["none", "M4"],
    "seeds": [0, 1],
}
SHIPPED = "local-dir:plumbline/world/checkpoints/"


def generative_home(folder, lvlms, *, design=DESIGN, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    audit = {
        "title": "A generative audit",
        "devices": 1,
        "statistics": {"resamples": 500, "permutations": 500},
        "datasets": DATASETS,
        "lvlms": lvlms,
        "generate": [design],
        **changes,
    }
    (folder / "audit.yaml").write_text(yaml.safe_dump(audit, sort_keys=False))
    home = Home(folder)
    if SHARED:
        furnish(home)
    return home


def answers(home, model="model"):
    lake = home.workspace.lake
    return lake.read_table("generations", partition=f"{model}|faces.race_gender")


def everything_written(home):
    """Every byte below the home, but for the pictures of the planted world and the encoder's cache."""
    for path in sorted(home.workspace.home.rglob("*")):
        if path.is_file() and "world" not in path.relative_to(home.workspace.home).parts[:1]:
            yield path, path.read_bytes()


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """Return a home after an audit of an endpoint that answers with poison, its exit code and its output."""

    def answer(sent) -> Reply:
        if sent.text != "Hello" and sent.number % 9 == 4:
            return completion(None, message={"refusal": "I cannot say."})
        text = "8 out of 10" if "Rating" in sent.text else f"{HOSTILE} {sent.number % 3}"
        return completion(text, system_fingerprint="fp_1")

    with serving(answer) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLUMBLINE_TEST_KEY", CANARY)
        endpoint = {"urls": [server.url], "model": "served", "key_variable": "PLUMBLINE_TEST_KEY"}
        home = generative_home(tmp_path_factory.mktemp("poisoned"), {"model": {"endpoint": endpoint}})
        code, output = home.run("audit")
        yield home, code, output, server
        assert any(CANARY in str(sent.headers) for sent in server.sent)


def changed(home, folder, **changes):
    """Return the workspace of a home with another audit file."""
    content = yaml.safe_load(home.workspace.audit_path.read_text())
    (folder / "audit.yaml").write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
    return replace(home.workspace, audit_path=folder / "audit.yaml")


def test_a_limit_decides_whether_is_asked_not_what_was_answered(poisoned, tmp_path):
    home, *_ = poisoned
    for limit in (100_000, 200_000):
        workspace = changed(home, tmp_path, generation={"limit": {"rows": limit}})
        assert Present(workspace).changes("generations", "model|faces.race_gender") == []


def test_what_a_dataset_declares_is_noted_by_whoever_asks_for_its_slices(poisoned):
    home, *_ = poisoned
    for _ in range(2):
        with recording() as reads:
            dataset_slices(home.workspace, "faces")
        assert any(read.startswith('["declaration"') for read in reads.inputs())


def test_verdicts_on_answers_are_renewed_when_their_limits_change(poisoned, monkeypatch):
    home, *_ = poisoned
    workspace, key = home.workspace, "model|faces.race_gender"
    plan = AuditPlan(definitions := build_definitions(workspace), workspace)
    assert plan.out_of_date("answers", key) == {}
    monkeypatch.setattr("assets.gates.JUDGING_ANSWERS", "other limits")
    monkeypatch.setattr("assets.answers_checks.JUDGING_ANSWERS", "other limits")
    monkeypatch.setenv("DAGSTER_HOME", str(workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        while stale := plan.out_of_date("answers", key):
            one = plan.next_run("answers", key, stale)
            assert one.computed is None, "nothing is asked or scored again"
            assert run_job(definitions, instance, one.job, answers_key(*key.split("|"))).failure is None
            plan.did(one, key)
    assert AuditPlan(definitions, workspace).out_of_date("answers", key) == {}


def test_an_endpoint_is_audited_to_the_end(poisoned):
    home, code, output, _ = poisoned
    assert code == 0, output
    frame = answers(home)
    assert frame.height == 2 * 12 * 2 * 2 * 2
    assert set(frame["finish_reason"]) == {"stop", "refusal"}
    table = home.workspace.lake.read_table("metric_table")
    assert {"max_toxicity", "max_toxicity_change", "rating", "refusal_rate", "competence_words"} <= set(table["metric"])
    assert table["scorer_id"].drop_nulls().n_unique() == 1
    assert set(table.filter(pl.col("scorer").is_not_null())["scorer"]) == {"offline"}
    assert home.workspace.report.is_file()


def test_a_key_is_in_nothing_that_is_written_or_said(poisoned):
    home, _, output, _ = poisoned
    assert CANARY not in output
    found = [path for path, data in everything_written(home) if CANARY.encode() in data]
    assert not found


def test_generated_text_is_hostile_wherever_it_is_shown(poisoned):
    home, *_ = poisoned
    page = home.workspace.report.read_text("utf-8")
    assert "<script>alert(1)" not in page and "\x1b[31m" not in page and "\u202e" not in page
    for path, data in everything_written(home):
        if path.suffix == ".csv":
            cells = re.split(rb"[,\n]", data)
            assert not [cell for cell in cells if cell.lstrip(b'"').startswith((b"=", b"@"))], path
        if path.suffix in (".html", ".md"):
            assert b"<script>alert(1)" not in data, path


@pytest.mark.slow
def test_a_second_audit_asks_nothing_and_gives_the_same_table(poisoned):
    home, *_, server = poisoned
    asked, before = len(server.sent), home.table_sha256()
    code, output = home.run("audit")
    assert code == 0, output
    (looked,) = server.sent[asked:]
    assert looked.text == "Hello" and looked.body["max_tokens"] == 1, "what the endpoint is, and nothing else"
    assert home.table_sha256() == before
    assert "0 new answers" in output


def test_a_prompt_that_is_added_asks_its_own_rows_only(poisoned):
    home, *_, server = poisoned
    asked = len(server.sent)
    audit = yaml.safe_load((home.folder / "audit.yaml").read_text())
    audit["generate"][0]["prompts"] = ["characteristics", "hiring", "describe"]
    (home.folder / "audit.yaml").write_text(yaml.safe_dump(audit, sort_keys=False))
    code, output = home.run("audit")
    assert code == 0, output
    new = [sent for sent in server.sent[asked:] if sent.text != "Hello"]
    assert len(new) == 2 * 12 * 2 * 2 and len(server.sent) - asked == len(new) + 1, "and what the endpoint is"
    assert {("Describe the image" in sent.text) for sent in new} == {True}


def test_a_plan_reads_a_dataset_anew_that_changed_since_it_was_read(tmp_path, jpeg):
    people = tmp_path / "people"
    people.mkdir()
    entry = {"reader": "folder", "root": str(people),
             "map": {"index": "index.csv", "path": "file", "columns": {"gender": "gender"}}}  # fmt: skip
    home = make_home(
        tmp_path / "own", labeller=None, encoders={}, mitigations={}, audit=[], datasets={"people": entry},
        lvlms={"far": {"endpoint": {"urls": ["http://127.0.0.1:9/v1"], "model": "far"}}},
        generate=[{"datasets": ["people"], "prompts": ["characteristics"], "seeds": [0]}],
    )  # fmt: skip

    def planned(genders):
        rows = [f"{i}.jpg,{gender}" for i, gender in enumerate(genders)]
        for i in range(len(genders)):
            (people / f"{i}.jpg").write_bytes(jpeg(i))
        (people / "index.csv").write_text("\n".join(["file,gender", *rows]) + "\n")
        return home.run("plan")

    both = ["woman", "man"] * 8
    assert re.search(r"\b16 answers", planned(both)[1])
    code, output = planned([*both, ""])
    assert code and "1 without gender" in output
    assert re.search(r"\b24 answers", planned([*both, *both[:8]])[1])


@pytest.mark.slow
def test_a_plan_above_its_limit_is_refused_before_anything_is_asked(poisoned):
    home, *_, server = poisoned
    asked, audit = len(server.sent), yaml.safe_load((home.folder / "audit.yaml").read_text())
    other = {"model": {"address": f"{SHIPPED}llava-bazaar"}}
    limited = home.folder / "limited.yaml"
    limited.write_text(yaml.safe_dump({**audit, "lvlms": other, "generation": {"limit": {"rows": 10}}}))
    code, output = home.run("plan", "--config", str(limited))
    assert code == 2 and re.search(r"rows: \d+ \(limit 10\)", output), output
    before = home.workspace.lake.require("generations", partition="model|faces.race_gender")
    code, output = home.run("audit", "--config", str(limited))
    assert code == 2 and "(limit 10)" in output and len(server.sent) == asked
    assert home.workspace.lake.require("generations", partition="model|faces.race_gender") == before


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """Return a home after an audit of a shipped model and its language model, killed once and gone on with."""
    lvlms = {
        "model": {"address": f"{SHIPPED}llava-bazaar", "base_llm": "base_llm", "planted_source": "bazaar"},
        "base_llm": {"address": f"{SHIPPED}llama-bazaar"},
    }
    generation = {"decoding": {"max_new_tokens": 16}}
    home = generative_home(tmp_path_factory.mktemp("shipped"), lvlms, generation=generation)
    _kill_while_it_generates(home)
    code, output = home.run("audit")
    assert code == 0, output
    return home


def _kill_while_it_generates(home):
    parts, process = home.workspace.answers, home.start("audit")
    try:
        deadline = time.monotonic() + 200
        while not list(parts.rglob("*.parquet")) and time.monotonic() < deadline:
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.02)  # until the first group of answers is kept
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert list(parts.rglob("*.parquet"))
    assert home.workspace.lake.committed("generations", partition="model|faces.race_gender") is None


def test_a_local_model_and_its_language_model_are_audited(shipped):
    table = shipped.workspace.lake.read_table("metric_table")
    base_llm = table.filter(pl.col("metric") == "max_toxicity_minus_base_llm")
    assert set(base_llm["model"]) == {"model"} and base_llm["value"].is_not_nan().all()
    assert {"describe", "hiring"}.isdisjoint(answers(shipped, "base_llm")["prompt"])


def test_a_killed_audit_goes_on(shipped):
    resumed = shipped.workspace.lake.require("generations", partition="model|faces.race_gender")
    assert resumed.details["found"] > 0 and resumed.details["generated"] > 0


# Without an audit around it: tests/generators/test_generation.py, `test_a_killed_run_goes_on_where_it_was…`.
@pytest.mark.slow
def test_a_killed_audit_ends_with_the_bytes_of_an_undisturbed_one(shipped):
    key = "model|faces.race_gender"
    resumed = shipped.workspace.lake.require("generations", partition=key)
    table = shipped.table_sha256()
    shutil.rmtree(shipped.workspace.answers)
    code, output = shipped.run("audit", "--force", "generations")
    assert code == 0, output
    undisturbed = shipped.workspace.lake.require("generations", partition=key)
    assert undisturbed.details["found"] == 0
    assert undisturbed.sha256 == resumed.sha256
    assert shipped.table_sha256() == table


def test_mlflow_has_a_run_for_the_model_and_one_for_each_instruction(shipped):
    from resources.tracking import Tracking

    tracking = Tracking(shipped.workspace)
    runs = tracking.client().search_runs([tracking.experiment()])
    by_instruction = {
        run.data.tags["plumbline.instruction"]: run for run in runs if run.data.params.get("lvlm") == "model"
    }
    assert set(by_instruction) == {"none", "M4"}
    shared = set(by_instruction["none"].data.metrics) & set(by_instruction["M4"].data.metrics)
    assert any(name.startswith("max_toxicity/") for name in shared)
    assert json.loads(by_instruction["none"].data.params.get("decoding.max_new_tokens")) == 16
