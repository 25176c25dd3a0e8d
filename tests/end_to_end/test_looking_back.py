"""Explaining numbers of a finished audit and handing it on, through the real command line."""

import json
import shutil

import polars as pl

from plumbline.catalog.schema import row_ids
from plumbline.provenance.forms import verify_folder

SKEW = (
    *("--metric", "max_skew", "--definition", "mean_over_pairs", "--model", "small-bazaar-3k"),
    *("--dataset", "fairface", "--suite", "crime", "--attribute", "race", "--condition", "before"),
)
SOUND = "Everything that could be checked is what this number was computed from."


def test_a_number_is_followed_to_its_sources_and_the_report_links_it(audited, tmp_path):
    home, _, _ = audited
    code, told = home.run("explain", *SKEW, "--html", str(tmp_path / "page.html"))
    assert code == 0, told
    for what in (
        "probe_logits",
        "image embeddings",
        "text embeddings",
        "checkpoint: weights",
        "dataset folder",
        "Dagster",
    ):
        assert what in told, what
    assert SOUND in told and "One image is left out at a time" in told
    page = (tmp_path / "page.html").read_text("utf-8")
    assert home.workspace.checkpoint("small-bazaar-3k").weights_sha256 in page and "data:image/jpeg;base64," in page
    report = home.workspace.report.read_text("utf-8")
    table = home.workspace.lake.read_table("metric_table")
    names = row_ids(table)
    told_rows = [name for name in names if name in report]
    assert told_rows
    pages = list((home.workspace.home / "explanations").rglob("*.html"))
    assert pages and all(f'href="explanations/{p.parent.name}/{p.name}"' in report for p in pages)


def test_whatever_is_deleted_upstream_is_noticed_and_said(copied):
    workspace, lake = copied.workspace, copied.workspace.lake
    root = workspace.dataset_root("fairface")
    image = lake.read_table("records", partition="fairface").row(5, named=True)["path"]
    (root / image).unlink()
    texts = lake.require("text_embeddings", partition="small-bazaar-3k")
    (lake.folder("text_embeddings", "small-bazaar-3k") / f"{texts.sha256}.safetensors").unlink()
    for shard in lake.require("image_embeddings", partition="fairface|small-bazaar-3k").details["shards"][:1]:
        for path in workspace.home.glob(f"lake/embeddings/*/{shard['sha256']}.safetensors"):
            path.unlink()
    code, told = copied.run("explain", *SKEW)
    assert code == 0 and SOUND not in told, told
    flat = " ".join(told.split())
    assert f"1 gone: {image}" in flat
    assert "gone: text embeddings" in flat and "gone: shards of image embeddings" in flat


def test_missing_answers_of_the_model_leave_an_explanation_that_says_so(copied):
    lake = copied.workspace.lake
    logits = lake.require("probe_logits", partition="fairface|small-bazaar-3k")
    (lake.folder("probe_logits", "fairface|small-bazaar-3k") / f"{logits.sha256}.safetensors").unlink()
    shutil.rmtree(copied.workspace.home / "world")
    code, told = copied.run("explain", *SKEW)
    flat = " ".join(told.split())
    assert code == 0 and "gone: responses of the model" in flat and "gone: dataset folder" in flat, told
    assert "Not available: what it would be computed from cannot be read" in flat
    assert not (copied.workspace.home / "world").exists(), "a planted folder that is gone is not written again"


def test_an_audit_is_exported_and_verified(audited, tmp_path):
    home, _, _ = audited
    folder = tmp_path / "bundle"
    code, told = home.run("export", "--to", str(folder))
    assert code == 0, told
    table = pl.read_parquet(folder / "metric_table.parquet")
    stored = home.workspace.lake.read_table("metric_table")
    assert table.height == stored.height and table["value"].equals(stored["value"])
    assert pl.read_csv(folder / "metric_table.csv", infer_schema_length=None).height == stored.height
    statement = json.loads((folder / "provenance.json").read_text())
    made_from = {m["name"]: m["digest"] for m in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}
    weights = home.workspace.checkpoint("small-bazaar-3k").weights_sha256
    assert made_from["checkpoint/small-bazaar-3k"]["sha256"] == weights
    assert "dataset/fairface" in made_from and "prompts/crime" in made_from
    subjects = {s["name"] for s in statement["subject"]}
    assert {"metric_table.parquet", "report.html", "impact_ratios.csv", "model_cards/small-bazaar-3k.md"} <= subjects
    bill = json.loads((folder / "sbom.cdx.json").read_text())
    components = {each["name"]: each for each in bill["components"]}
    assert components["small-bazaar-3k"]["hashes"][0]["content"] == weights
    assert components["polars"]["version"] == pl.__version__ and "sbom.cdx.json" in subjects
    assert verify_folder(folder).passed and home.run("verify", str(folder))[0] == 0
    (folder / "report.html").write_text("another")
    (folder / "runs.csv").unlink()
    (folder / "more").touch()
    code, told = home.run("verify", str(folder))
    assert code == 1 and {"changed: report.html", "missing: runs.csv", "extra: more"} <= set(told.splitlines())
    code, told = home.run("export", "--to", str(folder))
    assert code == 2 and "not empty" in told


def test_the_scorecard_is_printed_stored_exported_and_tracked_alike(audited, tmp_path):
    home, _, _ = audited
    code, told = home.run("scorecard", "--csv", str(tmp_path / "card.csv"))
    assert code == 0, told
    stored = home.workspace.lake.read_table("scorecard")
    assert "worst first" in told and all(model in told for model in stored["model"])
    written = pl.read_csv(tmp_path / "card.csv", infer_schema_length=None)
    assert written["row"].to_list() == stored["row"].to_list() and written["value"].equals(stored["value"])
    names = set(row_ids(home.workspace.lake.read_table("metric_table")))
    assert set(stored["row"].drop_nulls()) <= names, "each cell is a row that can be explained"
    code, _ = home.run("export", "--to", str(tmp_path / "bundle"))
    assert code == 0 and (tmp_path / "bundle" / "scorecard.csv").read_bytes() == (tmp_path / "card.csv").read_bytes()
    assert (tmp_path / "bundle" / "scorecard.png").read_bytes().startswith(b"\x89PNG")


def test_the_past_is_named_or_refused(audited):
    home, _, _ = audited
    newest = home.workspace.of_audit("newest").past.audit_id
    assert home.workspace.of_audit(newest[:8]).past.audit_id == newest
    code, told = home.run("explain", *SKEW, "--audit", "newest~1")
    assert code == 2 and "there is no such audit" in told
