"""The metric table for others, provenance, and model cards."""

import json
import math

import pandas as pd
import polars as pl
import pytest
import yaml
from huggingface_hub import ModelCardData, parse_eval_result_entries
from huggingface_hub.repocard_data import model_index_to_eval_results

from plumbline.catalog.schema import metric_frame, row_ids
from plumbline.datasets.grouping import crossed_name
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError
from plumbline.provenance.export import (
    CLIP_BENCHMARK,
    Material,
    exported_table,
    headline_rows,
    model_card,
    provenance_statement,
)
from plumbline.provenance.forms import Exported, flat_numbers, hub_dataset, model_cards, written
from plumbline.provenance.tracked_numbers import before_test_rows, headline_metrics
from plumbline.reasons import reason
from plumbline.report.reading import Reading
from plumbline.report.scorecard import own_question, scorecard

COMMON = {
    "metric": "max_skew", "definition": "mean_over_pairs", "model": "clip", "dataset": "faces", "suite": "crime",
    "attribute": "race", "event": "crime", "condition": "before", "statistic": "estimate", "value": 1.25,
    "ci_low": 1.0, "ci_high": 1.5, "p": 0.01, "q": 0.02, "n": 2100, "audit_id": "a" * 64, "dataset_digest": "d" * 64,
}  # fmt: skip
TABLE = metric_frame(
    [
        COMMON,
        COMMON | {"definition": "smoothed"},
        COMMON | {"condition": "saner"},
        COMMON | {"metric": "outcome_proportion", "definition": "top1", "group": "Black"},
        COMMON
        | {"model": "llava", "suite": "generation", "metric": "max_toxicity", "definition": "paper", "event": None}
        | {"statistic": "mean", "attribute": "race_gender", "prompt": "characteristics"},
        COMMON | {"model": "all models", "suite": "generation", "event": None},
    ]
)


def test_clip_benchmarks_columns_come_first_and_no_column_of_ours_is_lost():
    table = exported_table(TABLE, {"clip": "ViT-B-32/openai", "llava": "gpt-4o"})
    assert tuple(table.columns[:6]) == CLIP_BENCHMARK
    assert set(TABLE.columns) <= set(table.columns) and table["row_id"].to_list() == row_ids(TABLE).to_list()
    first = table.to_dicts()[0]
    assert first["pretrained"] == "ViT-B-32/openai" and first["model_fullname"] == "clip ViT-B-32/openai"
    assert first["task"] == "zeroshot_classification" and first["language"] == "en" and first["value"] == 1.25
    assert table["task"].to_list()[4:] == ["captioning", "captioning"]
    assert table["pretrained"].to_list()[5] is None and table["model_fullname"].to_list()[5] == "all models"


def test_the_card_is_read_back_by_the_hubs_own_reader():
    rows = headline_rows(TABLE, Reading())["clip"]
    assert rows.height == 1
    card = model_card("clip", rows, about={"checkpoint sha256": "b" * 64})
    metadata = yaml.safe_load(card.split("---\n")[1])
    name, results = model_index_to_eval_results(metadata["model-index"])
    assert name == "clip" and len(results) == 1
    one = results[0]
    assert one.task_type == "zero-shot-image-classification" and one.dataset_type == "faces"
    assert one.metric_type == "max_skew" and one.metric_value == 1.25 and one.metric_config == "mean_over_pairs"
    assert one.metric_args["ci_low"] == 1.0 and one.metric_args["row_id"] == row_ids(rows)[0]
    assert ModelCardData(model_name="clip", eval_results=results).to_dict()["model-index"] == metadata["model-index"]
    foreign = model_card("clip", rows, about={"<b>": "a` <img src=x>"})
    assert "- \\<b\\>: `a' <img src=x>`\n" in foreign
    assert "checkpoint sha256: `" in card and "| faces | max\\_skew" not in card


def test_the_card_says_what_the_scorecard_says_of_the_model():
    skew = {
        "model": "a", "dataset": "faces", "condition": "before", "statistic": "estimate", "suite": "crime",
        "event": "crime", "attribute": "race", "metric": "max_skew", "definition": "mean_over_pairs", "value": 1.5,
        "ci_low": 1.0, "ci_high": 2.0, "p": 0.001, "q": 0.002, "n": 200,
    }  # fmt: skip
    table = metric_frame([skew, skew | {"attribute": "gender", "q": 0.7}])
    card = model_cards(Exported(table, Reading()))["model_cards/a.md"].decode().replace("\u00a0", " ")
    assert "\n- On faces it gives crime labels 150% (95% CI 100–200%; q = 0.002) more often to one race" in card
    assert "\n- No evidence of a difference: Crime labels by gender." in card


def test_headline_numbers_are_those_of_the_scorecard_in_its_order():
    more = metric_frame(
        [
            COMMON | {"suite": "perception", "metric": "ndkl", "definition": "ranked", "event": "warmth"},
            COMMON | {"suite": "agency", "event": "negative_agency"},
        ]
    )
    rows = headline_rows(pl.concat([more, TABLE]), Reading())["clip"]
    assert rows["suite"].to_list() == ["crime", "agency"] and set(rows["metric"]) == {"max_skew"}


def test_generative_models_have_a_task_of_their_own():
    card = model_card("llava", headline_rows(TABLE, Reading())["llava"], about={})
    assert "image-text-to-text" in card


def test_the_statement_has_subjects_and_materials_with_digests(tmp_path):
    (tmp_path / "table.csv").write_bytes(b"a\n")
    statement = provenance_statement(
        tmp_path,
        ["table.csv"],
        [
            Material("dataset/faces", {"plumblineFolder": "d" * 64}, {}),
            Material("checkpoint/clip", {"sha256": "c" * 64}, {}),
        ],
        audit_id="a" * 64,
        version="1",
        settings={"title": "x"},
        runs=[{"cell_id": "1", "model": "clip", "dataset": "faces", "dagster_run": "r"}],
        made_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": "table.csv", "digest": {"sha256": digest_bytes(b"a\n")}}]
    made_from = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [one["name"] for one in made_from] == ["checkpoint/clip", "dataset/faces"]
    assert all(one["digest"] for one in made_from)
    assert statement["predicate"]["runDetails"]["byproducts"][0]["annotations"]["dagster_run"] == "r"


# --- The forms in which an audit is handed on, each read by the other tool's own reader.

EXPORTED = Exported(
    pl.concat(
        [
            TABLE,
            metric_frame(
                [
                    COMMON
                    | {
                        "metric": "zero_shot_accuracy",
                        "definition": "among_classes",
                        "suite": "trident",
                        "value": 0.75,
                    },
                    COMMON | {"dataset": "others", "q": None},
                ]
            ),
        ]
    ),
    Reading(),
    title="Faces",
    addresses={"clip": "ViT-B-32/openai"},
    about={"clip": {"weights sha256": "b" * 64}},
    hub={"faces": hub_dataset(f"hf-hub:datasets/org/faces@{'c' * 40}")},
    made_at="2026-11-23T10:00:00+00:00",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("forms")
    for name, content in written(EXPORTED).items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")
def test_croissant_describes_every_column_and_its_own_reader_reads_the_rows(folder):
    import mlcroissant

    dataset = mlcroissant.Dataset(folder / "croissant.json")
    assert not dataset.metadata.issues.errors
    records = [*dataset.records("metrics")]
    table = pl.read_csv(folder / "metric_table.csv", infer_schema_length=None)
    assert [name.removeprefix("metrics/") for name in records[0]] == table.columns and len(records) == table.height
    assert [record["metrics/value"] for record in records] == table["value"].to_list()
    assert {record["metrics/model"] for record in records} == {b"clip", b"llava", b"all models"}
    fields = json.loads((folder / "croissant.json").read_text())["recordSet"][0]["field"]
    assert all(field["description"] != field["name"] for field in fields), "every column says what it is"


def test_the_hub_reads_its_results_back(folder):
    entries = parse_eval_result_entries(yaml.safe_load((folder / "eval_results/clip.yaml").read_text("utf-8")))
    skew = {entry.dataset_id: entry for entry in entries if entry.task_id == "max_skew/crime/crime/race"}
    assert set(skew) == {"org/faces", "others"}
    one = skew["org/faces"]
    assert (one.value, one.dataset_revision, one.date) == (1.25, "c" * 40, EXPORTED.made_at)
    assert one.notes == "mean_over_pairs; interval 1.0–1.5, q = 0.02, n = 2100; audit aaaaaaaaaaaa"
    assert "q = " not in skew["others"].notes
    assert (folder / "eval_results/llava.yaml").is_file() and not (folder / "eval_results/all models.yaml").exists()


def test_clip_benchmarks_table_has_a_row_a_model_and_dataset(folder):
    table = pd.read_csv(folder / "clip_benchmark.csv")
    assert tuple(table.columns[:7]) == (*CLIP_BENCHMARK, "acc1")
    first = table.set_index(["model", "dataset"]).loc["clip"].loc["faces"]
    assert first["acc1"] == 0.75 and first["max_skew/crime/crime/race"] == 1.25
    assert first["model_fullname"] == "clip ViT-B-32/openai" and first["task"] == "zeroshot_classification"
    assert table.set_index("model").loc["llava", "task"] == "captioning"


def test_numbers_are_one_flat_dict(folder):
    numbers = json.loads((folder / "numbers.json").read_text())
    assert numbers["faces/clip/max_skew/crime/crime/race"] == 1.25
    assert all(isinstance(value, float) for value in numbers.values())
    assert any(name.startswith("faces/llava/max_toxicity") for name in numbers)


def test_own_metrics_of_one_event_and_attribute_keep_a_number_each():
    own = COMMON | {"metric": "own_metric_gap"}
    table = metric_frame([own | {"definition": "first", "value": 0.25}, own | {"definition": "second", "value": 0.5}])
    asked = tuple(own_question(name, "crime", "crime", "race", "near misses") for name in ("first", "second"))
    files = written(Exported(table, Reading(own_questions=asked)))
    expected = {"first/crime/crime/race": 0.25, "second/crime/crime/race": 0.5}
    assert json.loads(files["numbers.json"]) == {f"faces/clip/{name}": value for name, value in expected.items()}
    of_clip = pl.read_csv(files["clip_benchmark.csv"]).row(0, named=True)
    assert expected.items() <= of_clip.items()
    results = parse_eval_result_entries(yaml.safe_load(files["eval_results/clip.yaml"]))
    assert {one.task_id: one.value for one in results} == expected


def test_a_model_without_a_number_has_a_card_that_says_so_and_no_results_for_the_hub():
    undefined = COMMON | {
        "model": "other",
        "value": float("nan"),
        "ci_low": None,
        "ci_high": None,
        "p": None,
        "q": None,
    }
    files = written(Exported(metric_frame([COMMON, undefined]), Reading(), about={"other": {"weights": "c" * 64}}))
    card = files["model_cards/other.md"].decode()
    assert card.startswith("## Bias") and "no number for the scorecard" in card and "c" * 64 in card
    assert "| Dataset |" not in card
    assert "eval_results/clip.yaml" in files and "eval_results/other.yaml" not in files


def test_numbers_have_names_that_mlflow_takes():
    table = metric_frame([COMMON | {"attribute": crossed_name(("site", "sex"))}])
    assert list(flat_numbers(*headline_rows(table, Reading()).values())) == ["max_skew/crime/crime/site_x_sex"]


def _skews(model, plain, smoothed, *, left_out):
    why = (reason("undefined_pairs", undefined=2, pairs=3),) if left_out else ()
    sure = COMMON | {"model": model, "q": 0.001}
    shares = {"Black": 0.0 if left_out else 0.1, "White": 0.5, "Asian": 0.2}
    return [
        sure | {"value": plain, "reason": why},
        sure | {"definition": "smoothed", "value": smoothed},
        *(
            COMMON
            | {"model": model, "metric": "outcome_proportion", "definition": "top1", "group": name, "value": share}
            for name, share in shares.items()
        ),
    ]


def test_the_headline_numbers_of_models_side_by_side_have_one_definition_as_in_the_scorecard():
    table = metric_frame([*_skews("before", 1.8, 85.2, left_out=True), *_skews("after", 11.6, 10.1, left_out=False)])
    files, name = written(Exported(table, Reading())), "max_skew/crime/crime/race/smoothed"
    shown = dict(scorecard(table, Reading()).select("model", "value").rows())
    assert shown == {"before": 85.2, "after": 10.1}
    assert json.loads(files["numbers.json"]) == {f"faces/{model}/{name}": value for model, value in shown.items()}
    columns = pl.read_csv(files["clip_benchmark.csv"])
    assert dict(columns.select("model", name).rows()) == shown
    assert "value: 10.1" in files["model_cards/after.md"].decode() and f"task_id: {name}" in str(files)
    alone = metric_frame(_skews("after", 11.6, 10.1, left_out=False))
    assert json.loads(written(Exported(alone, Reading()), ["numbers"])["numbers.json"]) == {
        "faces/after/max_skew/crime/crime/race": 11.6
    }


def test_a_run_has_the_smoothed_skew_beside_each_skew_and_alone_where_pairs_are_left_out():
    name = "max_skew/crime/crime/race"
    whole = headline_metrics(metric_frame(_skews("after", 11.6, 10.1, left_out=False)))
    partial = headline_metrics(metric_frame(_skews("before", 1.8, 85.2, left_out=True)))
    assert whole == {name: 11.6, f"{name}/smoothed": 10.1} and partial == {f"{name}/smoothed": 85.2}


def test_numbers_of_a_logit_adjustment_are_of_its_test_rows_before_and_after():
    after = metric_frame([COMMON | {"condition": "factors", "value": 1.4}, COMMON | {"condition": "before"}])
    name = "max_skew/crime/crime/race"
    assert headline_metrics(after, "factors", of_texts=False) == {f"{name}/test_rows": 1.4}
    effects = pl.DataFrame(
        [
            COMMON | {"kind": "axis", "value_before": 1.2},
            COMMON | {"kind": "axis", "definition": "smoothed", "value_before": 1.1},
            COMMON | {"kind": "cost", "metric": "zero_shot_accuracy", "value_before": 0.9},
            COMMON | {"kind": "axis", "attribute": "gender", "value_before": math.nan},
        ]
    )
    assert before_test_rows(effects) == {f"{name}/smoothed/test_rows/before": 1.1}, "both sides have it"


def test_one_form_alone_and_none_that_is_not_there(folder):
    assert {path.name for path in folder.iterdir()} >= {"metric_table.parquet", "scorecard.csv", "impact_ratios.md"}
    assert list(written(EXPORTED, ["numbers"])) == ["numbers.json"]
    with pytest.raises(ConfigError, match=r"no such form[\s\S]*clip_benchmark"):
        written(EXPORTED, ["xlsx"])
