"""Every mitigation through the graph: fitted, judged on other images, tracked, exported, and found again."""

import dagster as dg
import polars as pl
import pytest
import yaml
from homes import AUDIT, make_home

from assets.adjustments import read_adjustments
from assets.asked_cells import require_mitigations
from assets.cells import StoredCell
from assets.mitigation_fits import read_text_fits
from assets.plans import plan_encoders
from assets.text_mitigations import TEXT_METHODS
from plumbline.catalog.own_suites import starter
from plumbline.encoders.families import FAMILIES
from plumbline.errors import ConfigError
from plumbline.metrics.paired.mitigations import TRANSFER_SCHEMA, VERDICTS
from resources.checkout import PROJECT

MODEL, DATASET = "small-bazaar-3k", "visitors"
PARTITION = f"{DATASET}|{MODEL}"
VISITORS = yaml.safe_load((PROJECT / "audit.yaml").read_text())["datasets"][DATASET]
MITIGATIONS = {
    "ala": {"method": "logit_adjustment", "per_class": 5, "epochs": 8},
    "ala-additive": {"method": "logit_adjustment", "mode": "additive", "per_class": 5, "ablation": True},
    "ala-composite": {"method": "logit_adjustment", "candidates": "composite", "per_class": 3},
    "projection": {"method": "bias_prompts", "attributes": ["race"]},
    "array": {
        "method": "prompt_array",
        "attribute": "race",
        "learning_rate": 0.01,
        "epochs": 2,
        "batch": 16,
        "alternate": 2,
    },
    "neutral": {"method": "saner", "attribute": "race", "epochs": 2, "batch": 16},
    "carried": {"method": "saner", "attribute": "race", "epochs": 2, "batch": 16, "fit_on": DATASET},
    "paired": {"method": "saner", "attribute": "gender", "epochs": 1, "pairs": "captions"},
}
OWL = {"address": "local-dir:plumbline/world/checkpoints/owlv2-bazaar-3k"}
HOME = {
    "datasets": {
        DATASET: VISITORS,
        "pata": {"reader": "pata", "root": "planted:pata"},
        "captions": {"reader": "coco", "root": "planted:coco"},
    },
    "retrieval": {"datasets": ["captions"], "k": [1, 5]},
    "encoders": {MODEL: AUDIT["encoders"][MODEL]},
    "labeller": MODEL,
    "statistics": {"resamples": 200, "permutations": 200},
    "mitigations": MITIGATIONS,
    "audit": [
        {"datasets": [DATASET], "suites": ["trident", "trident_composite", "crime", "communion", "agency"]},
        {"datasets": ["pata"], "suites": ["communion"]},
    ],
}


# Runs an example where there is no Plumbline; tests/mitigations/test_export.py has examples run in a new process.
ALONE = """
import runpy, sys

OWN = ("plumbline", "assets", "resources", "orchestration")

class Absent:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in OWN:
            raise ModuleNotFoundError(name)

for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
    del sys.modules[name]
sys.meta_path.insert(0, Absent)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def mitigated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mitigated")
    # What is fitted reads the prompts of the package, and none of an audit's own.
    (folder / "jobs.yaml").write_text(starter("outcomes", "jobs"))
    asked = [HOME["audit"][0], {"datasets": ["pata"], "suites": ["communion", str(folder / "jobs.yaml")]}]
    home = make_home(folder, **(HOME | {"audit": asked}))
    code, output = home.run("audit")
    assert code == 0, output
    return home


def stored(home):
    return StoredCell.find(home.workspace, DATASET, MODEL)


def test_a_mitigation_fitted_on_one_dataset_is_judged_on_another_and_fitted_once(mitigated):
    workspace = mitigated.workspace
    here, there = (StoredCell.find(workspace, dataset, MODEL) for dataset in (DATASET, "pata"))
    fits = {cell.dataset: read_text_fits(cell, "saner") for cell in (here, there)}
    first, second = (fits[dataset].fits["carried"] for dataset in (DATASET, "pata"))
    assert first.fitted_on == second.fitted_on and first.train_ids == second.train_ids
    for name, array in first.parameters.items():
        assert array.tobytes() == second.parameters[name].tobytes()
    # PATA has no training split: what is fitted on it alone cannot be.
    assert "neutral" in fits["pata"].absent and "carried" not in fits["pata"].absent
    images = workspace.lake.read_table("records", partition="pata")["image_id"]
    assert not set(images).intersection(second.train_ids)
    judged = workspace.lake.read_table("mitigated_metrics", partition=there.partition).filter(condition="carried")
    assert judged.height and judged["n"].max() == images.len()
    # Trained is what has an epoch kept: one state for both.
    kept = [*workspace.training.root.rglob("*.json")]
    keys = {fit.fitted_on for fit in (first, second)}
    assert sum(any(key in path.name for key in keys) for path in kept) == 1


def test_no_judged_image_was_fitted_on(mitigated):
    cell = stored(mitigated)
    records = mitigated.workspace.lake.read_table("extended_records", partition=DATASET)
    train = set(records.filter(split="train")["image_id"])
    assert train and len(train) < records.height
    trained = [fit for m in TEXT_METHODS for fit in read_text_fits(cell, m.name).fits.values()]
    assert len(trained) == 5
    pairs = mitigated.workspace.lake.read_table("records", partition="captions").filter(split="train")["image_id"]
    for fit in trained:
        assert set(fit.train_ids) <= (set(pairs) if fit.settings.get("pairs") else train)
    assert sum(bool(fit.train_ids) for fit in trained) == 4, "a projection of prompts sees no image"
    effects = mitigated.workspace.lake.read_table("mitigation_effects", partition=PARTITION)
    judged = records.height - len(train)
    of_texts = effects.filter(pl.col("method") != "logit_adjustment")
    assert of_texts["n"].max() <= judged
    adjustments = read_adjustments(cell).fits
    for name, fits in adjustments.items():
        fitted_on = {row for fit in fits.values() for row in fit.train_rows[0].tolist()}
        own = effects.filter(condition=name)
        assert own["n"].max() <= records.height - len(fitted_on)


def test_what_is_trained_on_pairs_needs_no_training_split_and_retrieval_is_judged_by_other_pairs(mitigated):
    workspace = mitigated.workspace
    for dataset in (DATASET, "pata"):
        cell = StoredCell.find(workspace, dataset, MODEL)
        fit = read_text_fits(cell, "saner").fits["paired"]
        table = workspace.lake.read_table("metric_table").filter(dataset=dataset, event="captions")
        assert set(table["metric"]) == {"retrieval_recall", "retrieval_recall_gain"} and set(table["k"]) == {1, 5}
        assert {"before", "projection", "paired"} <= set(table["condition"])
        # 120 of COCO's val are judged, and none of its 300 of train.
        assert set(table["n"]) == {120} and len(fit.train_ids) == 300
        assert (
            table["suite_hash"].n_unique() == 1 and table.filter(metric="retrieval_recall_gain")["p"].null_count() == 0
        )
    labels = workspace.lake.read_table("extended_records", partition="captions")
    assert labels["auto_gender"].null_count() == labels.height, "nobody is labelled in pairs"
    assert workspace.lake.committed("image_embeddings", partition=f"captions|{MODEL}") is None
    page = workspace.report.read_text("utf-8")
    assert "captions of captions that name a person; no labels" in page and "retrieval on image-text pairs" in page
    planned = {cell.dataset: cell for cell in plan_encoders(workspace, {}).cells}
    assert planned["captions"].images_to_embed == 0 and planned["captions"].images == 420


def test_every_mitigation_is_judged_on_bias_harm_and_cost(mitigated):
    table = mitigated.workspace.lake.read_table("bias_transfer").filter(dataset=DATASET)
    assert dict(table.schema) == dict(pl.Schema(TRANSFER_SCHEMA)) and set(table["verdict"]) <= set(VERDICTS)
    assert set(table["condition"]) == set(MITIGATIONS)
    for name in ("projection", "array", "neutral"):
        own = table.filter(condition=name)
        axes = {(r["attribute"], r["event"]) for r in own.filter(metric="max_skew").iter_rows(named=True)}
        six = {(a, e) for a in ("gender", "race") for e in ("crime", "negative_communion", "negative_agency")}
        assert six <= axes
        costs = set(own.filter(kind="cost").select("metric", "definition").iter_rows())
        assert {("zero_shot_accuracy", "macro"), ("retrieval_recall", "image_to_text@1"),
                ("retrieval_r_precision", "text_to_image")} <= costs  # fmt: skip
        assert own.filter(kind="harm").height and own.filter(kind="trident").height
    adjusted = table.filter(condition="ala")
    assert {"harm", "axis", "trident", "cost"} <= set(adjusted["kind"])
    defined = table.filter(pl.col("value").is_finite())
    ends = defined.select(pl.col("value_after") - pl.col("value_before") - pl.col("value"))
    assert ends.to_series().abs().max() < 1e-9 and defined["n"].min() > 0


def test_metric_rows_after_stand_beside_those_before(mitigated):
    table = mitigated.workspace.lake.read_table("metric_table").filter(dataset=DATASET)
    key = ["metric", "definition", "suite", "attribute", "group", "reference_group", "event", "probe", "k", "statistic"]
    for name in ("projection", "array", "neutral"):
        own = table.filter(condition=name)
        assert {"max_skew", "harm_rate", "probe_rate", "macro_accuracy"} <= set(own["metric"])
        assert own.select(key).is_duplicated().sum() == 0
        assert own["cell_id"].null_count() == 0
    composite = table.filter(condition="ala-composite")
    assert set(composite.filter(metric="macro_accuracy_gain")["suite"]) == {"trident_composite"}
    ablation = mitigated.workspace.lake.read_table("adjustment_ablation", partition=PARTITION)
    assert set(ablation["condition"]) == {"ala-additive"} and ablation["per_class"].n_unique() == 6 + 1


def test_before_and_after_are_runs_that_can_be_compared(mitigated):
    from mlflow import MlflowClient

    client = MlflowClient(mitigated.workspace.tracking_uri)
    experiment = client.get_experiment_by_name("plumbline").experiment_id
    found = client.search_runs([experiment], f"params.dataset = '{DATASET}'")
    runs = {run.data.tags["plumbline.condition"]: run for run in found}
    assert set(runs) == {"before", *MITIGATIONS}
    for name in ("projection", "array", "neutral"):
        shared = set(runs["before"].data.metrics) & set(runs[name].data.metrics)
        names = ("max_skew/crime/crime/race/smoothed/judged_rows", "harm_rate/crime/crime/judged_rows")
        assert {*names, "zero_shot_accuracy/macro", "retrieval_recall/image_to_text_at_1"} <= shared
        files = {item.path for item in client.list_artifacts(runs[name].info.run_id)}
        assert {"parameters.safetensors", "effects.csv", "metrics.parquet"} <= files
    of_ablation = client.list_artifacts(runs["ala-additive"].info.run_id)
    assert "ablation.csv" in {item.path for item in of_ablation}
    assert runs["array"].data.params["mitigation.attribute"] == "race"
    for name in ("array", "neutral", "ala"):
        curves = [key for key in runs[name].data.metrics if key.startswith("loss/")]
        assert curves and all(len(client.get_metric_history(runs[name].info.run_id, c)) > 1 for c in curves)


def test_moved_bias_is_a_warning_and_blocks_nothing(mitigated, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(mitigated.workspace.dagster_home))
    with dg.DagsterInstance.get() as instance:
        key = dg.AssetCheckKey(dg.AssetKey("bias_transfer"), "no_bias_is_moved")
        (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        evaluation = record.event.dagster_event.asset_check_evaluation_data
    assert evaluation.severity == dg.AssetCheckSeverity.WARN and not evaluation.blocking
    moved = "improve one axis and worsen another" in evaluation.description
    assert evaluation.passed == (not moved)
    assert mitigated.workspace.report.is_file()


@pytest.mark.slow
def test_a_second_audit_trains_nothing_and_changes_no_byte(mitigated):
    before = mitigated.table_sha256()
    transfer = mitigated.workspace.lake.require("bias_transfer").sha256
    epochs = {p: p.stat().st_mtime_ns for p in mitigated.workspace.home.glob("lake/training/*/*")}
    assert len(epochs) >= 4, "two trainings, each with data and manifest"
    code, output = mitigated.run("audit")
    assert code == 0, output
    assert mitigated.table_sha256() == before
    assert mitigated.workspace.lake.require("bias_transfer").sha256 == transfer
    assert {p: p.stat().st_mtime_ns for p in mitigated.workspace.home.glob("lake/training/*/*")} == epochs


@pytest.mark.parametrize("name", [pytest.param("ala", marks=pytest.mark.slow), "array"])
def test_an_export_runs_without_plumbline(mitigated, tmp_path, name):
    code, output = mitigated.run("export-mitigation", MODEL, DATASET, name, "--to", str(tmp_path / name))
    assert code == 0, output
    folders = [tmp_path / name / suite for suite in ("trident", "crime")] if name == "ala" else [tmp_path / name]
    assert {path.parent for path in (tmp_path / name).rglob("README.md")} == set(folders)
    readmes = [(folder / "README.md").read_text() for folder in folders]
    assert all(MODEL in readme and DATASET in readme for readme in readmes)
    for readme, folder in zip(readmes, folders):
        others = {"trident", "crime", "communion", "agency"} - {folder.name}
        assert name != "ala" or not any(f" of {suite} " in readme for suite in others)
    root = mitigated.workspace.dataset_root(DATASET)
    image = root / mitigated.workspace.lake.read_table("records", partition=DATASET)["path"][0]
    checkpoint = PROJECT / "plumbline/world/checkpoints" / MODEL
    for folder in folders:
        code, output = mitigated.run("-c", ALONE, str(folder / "example.py"), str(checkpoint), str(image))
        assert code == 0, output
        assert output.strip()


def test_an_export_of_what_was_not_tried_is_refused(mitigated, tmp_path):
    code, output = mitigated.run("export-mitigation", MODEL, DATASET, "saner", "--to", str(tmp_path))
    assert code == 2 and "not tried on this cell" in output and "projection" in output


def test_a_dataset_without_a_training_split_leaves_out_what_must_be_trained(mitigated):
    home = mitigated
    details = home.workspace.lake.require("bias_transfer").details
    left_out = dict(row["reason"].split(": ", 1) for row in details["absent"] if row["dataset"] == "pata")
    for name in ("array", "neutral"):
        assert "no rows to train on" in left_out[f"{name} was not tried"]
    assert "says who is pictured" in left_out["ala of communion was not tried"]
    assert "neutral was not tried" in home.workspace.report.read_text("utf-8")
    tried = home.workspace.lake.read_table("bias_transfer").filter(dataset="pata")
    assert set(tried["condition"]) == {"projection", "carried", "paired"}


@pytest.mark.parametrize(
    ("model", "suites", "mitigation", "said"),
    [
        ("owl", ["crime"], "array", "`array` needs embed_images, embed_texts, new_texts, text_gradients"),
        (MODEL, ["perception"], "neutral", "nothing would show what the mitigation `neutral` changes"),
        (MODEL, ["agency", "communion"], "ala", r"`ala` has nothing to be fitted on[\s\S]*agency, communion"),
        (MODEL, ["agency", "trident"], "ala-composite", "`ala-composite` has nothing to be fitted on"),
    ],
)
def test_what_cannot_be_tried_is_refused(tmp_path, model, suites, mitigation, said):
    entry = {"encoders": [model], "datasets": [DATASET], "suites": suites, "mitigations": [mitigation]}
    home = make_home(tmp_path, **HOME | {"encoders": {MODEL: AUDIT["encoders"][MODEL], "owl": OWL}, "audit": [entry]})
    family = FAMILIES[home.workspace.checkpoint(model).family]
    with pytest.raises(ConfigError, match=said):
        require_mitigations(home.workspace, DATASET, model, family=family)


@pytest.mark.slow
def test_a_named_mitigation_that_the_data_cannot_train_is_told_by_check_and_report_and_stops_nothing(mitigated):
    content = yaml.safe_load(mitigated.workspace.audit_path.read_text())
    content["audit"][1]["mitigations"] = ["neutral"]
    mitigated.workspace.audit_path.write_text(yaml.safe_dump(content))
    code, output = mitigated.run("check")
    told = " ".join(output.split())
    assert code == 0 and "`neutral` will not be tried: no row is of a training split" in told, output
    code, output = mitigated.run("audit")
    assert code == 0, output
    assert "neutral was not tried" in mitigated.workspace.report.read_text("utf-8")
