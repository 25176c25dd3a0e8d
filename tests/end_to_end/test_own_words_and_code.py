"""Words and code beside the audit file, audited to the end; an edit computes what reads them, and nothing else."""

import dagster as dg
import numpy as np
import polars as pl
import pytest
from fault_server import completion, serving
from homes import make_home
from PIL import Image
from told_to_dagster import made_since, runs

from plumbline.catalog.own_suites import starter

SCORER = '''"""Texts that shout are toxic, as far as this scorer knows."""


def score(texts):
    """Return the share of capital letters of each text."""
    return [{"toxicity": sum(map(str.isupper, text)) / max(1, len(text))} for text in texts]
'''
FACES = {"faces": {"reader": "socialcounterfactuals", "root": "planted:socialcounterfactuals"}}


def scores_of(home):
    scores = home.workspace.lake.read_table("toxicity_scores", partition="model|faces.race_gender")
    return scores.filter(scorer="shouting", attribute="toxicity").sort("row_key")


@pytest.mark.slow
def test_an_edited_scorer_scores_the_answers_again_and_nothing_else(tmp_path, monkeypatch):
    def answer(sent):
        return completion("A LOUD person." if sent.number % 3 else "a quiet person.", system_fingerprint="fp_1")

    (tmp_path / "shouting.py").write_text(SCORER)
    with serving(answer) as server:
        design = {"lvlms": ["model"], "datasets": ["faces"], "subsets": ["race_gender"], "occupations": ["chef"]}
        home = make_home(
            tmp_path,
            labeller=None,
            datasets=FACES,
            encoders={},
            audit=[],
            mitigations={},
            statistics={"resamples": 200, "permutations": 200},
            lvlms={"model": {"endpoint": {"urls": [server.url], "model": "served"}}},
            scorers={"shouting": {"kind": "own", "function": "shouting:score"}, "offline": {"kind": "offline"}},
            generate=[{**design, "prompts": ["characteristics"], "instructions": ["none"], "seeds": [0]}],
        )
        code, output = home.run("audit")
        assert code == 0, output
        asked, lake = len(server.sent), home.workspace.lake
        assert "Headlines and figures are of the scores of shouting" in home.workspace.report.read_text("utf-8")
        newest = home.workspace.of_audit("newest").audit
        assert [*newest.scorers] == ["shouting", "offline"], "the order of the audit file is recorded"
        answers, first = lake.require("generations", partition="model|faces.race_gender"), scores_of(home)
        table = lake.read_table("metric_table").filter(scorer="offline")
        monkeypatch.setenv("DAGSTER_HOME", str(home.workspace.dagster_home))
        with dg.DagsterInstance.get() as instance:
            before = runs(instance)
        (tmp_path / "shouting.py").write_text(SCORER.replace("max(1, len(text))", "(2 * max(1, len(text)))"))
        code, output = home.run("audit")
        assert code == 0, output
        # An endpoint is asked once what it is; nothing is asked of it about an image.
        assert [sent.text for sent in server.sent[asked:]] == ["Hello"]
        with dg.DagsterInstance.get() as instance:
            made = {asset for asset, _ in made_since(instance, before)}
    assert {"toxicity_scores", "metric_table", "audit_report"} <= made
    assert not made & {"records", "extended_records", "generations"}
    assert lake.require("generations", partition="model|faces.race_gender") == answers
    again = scores_of(home)
    assert first.height > 10 and first["score"].max() > 0
    assert again["score"].to_list() == pytest.approx((first["score"] / 2).to_list())
    keys = ["metric", "group", "value", "ci_low", "ci_high", "n"]
    assert lake.read_table("metric_table").filter(scorer="offline").select(keys).equals(table.select(keys))


@pytest.mark.slow
def test_captions_of_ones_own_are_audited_to_the_end(tmp_path):
    rng, n = np.random.default_rng(0), 120
    folder = tmp_path / "staff"
    folder.mkdir()
    for i in range(n):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(folder / f"{i}.png")
    rows = {
        "photo": [f"{i}.png" for i in range(n)],
        "gender": [("woman", "man", "non-binary")[i % 3] for i in range(n)],
        "department": [("R&D", "sales")[i // 3 % 2] for i in range(n)],
        "scene": ["office"] * n,
    }
    pl.DataFrame(rows).write_csv(folder / "people.csv")
    (tmp_path / "scenes.yaml").write_text(starter("captions", "scenes"))
    columns = {name: name for name in ("gender", "department", "scene")}
    mapped = {"index": "people.csv", "path": "photo", "columns": columns}
    home = make_home(
        tmp_path,
        labeller=None,
        datasets={"staff": {"reader": "folder", "root": str(folder), "map": mapped}},
        encoders={"one": {"address": "local-dir:plumbline/world/checkpoints/small-bazaar-3k"}},
        audit=[{"suites": ["./scenes.yaml"]}],
        statistics={"resamples": 200, "permutations": 200},
        mitigations={},
    )
    code, output = home.run("audit")
    assert code == 0, output
    table = home.workspace.lake.read_table("metric_table")
    own = table.filter(suite="scenes")
    rates = own.drop_nulls("group").filter(pl.col("value").is_not_nan())
    by_group = {(row["attribute"], row["group"]): row["n"] for row in rates.iter_rows(named=True)}
    assert {("gender", "woman"), ("gender", "man"), ("gender", "non-binary"), ("department", "R&D")} <= set(by_group)
    assert by_group["gender", "non-binary"] == n // 3 and by_group["department", "sales"] == n // 2
    assert own.filter(pl.col("p").is_not_null()).height and rates["ci_low"].is_not_null().any()
    page = home.workspace.report.read_text("utf-8")
    assert "Scenes" in page or "scenes" in page
    before = home.table_sha256()
    # Other words: what reads them, of the same images.
    text = (tmp_path / "scenes.yaml").read_text()
    (tmp_path / "scenes.yaml").write_text(text.replace("an overwhelmed colleague", "a lost colleague"))
    code, output = home.run("audit")
    assert code == 0 and home.table_sha256() != before, output
    assert "a lost colleague" in home.workspace.report.read_text("utf-8")
