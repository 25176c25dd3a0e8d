"""Agreement of people over all generative models, as the metric table holds it: a lake with two models' answers."""

import dagster as dg
import numpy as np
import polars as pl
import pytest

from assets import answers, findings, language
from assets.answers import StoredAnswers
from assets.slices import AskedSlice
from assets.up_to_date import Standing
from plumbline.catalog.schema import GENERATION_SCHEMA, SCORE_SCHEMA, metric_frame
from plumbline.errors import ScoringError
from plumbline.report import AbsentCell
from resources.workspace import Workspace

AUDIT = """
labeller: b32
statistics: {{resamples: 100, permutations: 100}}
datasets:
  social: {{reader: socialcounterfactuals, root: /data/social}}
encoders:
  b32: {{address: ViT-B-32-quickgelu/openai}}
lvlms:
  llava: {{address: "hf-hub:llava-hf/llava-1.5-7b-hf@0123456789012345678901234567890123456789", base_llm: vicuna}}
  gemma: {{address: "local-dir:checkpoints/gemma"}}
  vicuna: {{address: "local-dir:checkpoints/vicuna"}}
generate:
  - {{datasets: [social], prompts: [personality]}}
language: {language}
"""
MODELS, SLICE = ("llava", "gemma", "vicuna"), "social.race_gender"
TEXTS, ANNOTATORS = 6, 3
WORD = "race_gender/Black_woman/sassy"


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """Return a home with the answers of two models and of a language model; half of the scores are 0.3 and above."""
    found = Workspace(tmp_path / "audit.yaml", tmp_path / "home")
    say(found, annotations=tmp_path / "sheet.csv")
    people = pl.DataFrame(
        {
            "image_id": [f"image {i}" for i in range(TEXTS)],
            "subset": "race_gender",
            "attribute": "race_gender",
            "group": [("Black_woman", "Asian_man")[i % 2] for i in range(TEXTS)],
            "occupation": "chef",
            "set_id": [f"set {i // 2}" for i in range(TEXTS)],
            "set_groups": pl.Series([2] * TEXTS, dtype=pl.Int64),
        }
    )
    pictured = found.lake.write_table(
        "pictured_people", people, partition=SLICE, details={"dataset": "social", "dataset_digest": "d" * 64}
    )
    for model in MODELS:
        store(found, model, people, pictured.sha256)
    asked = {SLICE: AskedSlice(SLICE, "social", people, ())}
    monkeypatch.setattr(answers, "asked_slices", lambda workspace, model: asked)
    return found


def say(workspace, **language):
    quoted = ", ".join(f'{name}: "{value}"' for name, value in language.items())
    workspace.audit_path.write_text(AUDIT.format(language="{" + quoted + "}"))


def store(workspace, model, people, pictured):
    keys = [f"{model}/{i}" for i in range(people.height)]
    same = {
        "model": model, "dataset": "social", "prompt": "personality", "instruction": "none", "seed": 0,
        "text": "She is sassy .", "finish_reason": "stop", "prompt_tokens": 1, "new_tokens": 4, "source": model,
        "thinking": "", "thinking_tokens": 0,
    }  # fmt: skip
    said = people.select("subset", "image_id", "set_id", row_key=pl.Series(keys)).with_columns(
        pl.lit(value).alias(name) for name, value in same.items()
    )
    said = said.select(list(GENERATION_SCHEMA)).cast(pl.Schema(GENERATION_SCHEMA))
    details = {"pictured": pictured, "prompts": "p" * 64, "version": f"version of {model}"}
    made = workspace.lake.write_table("generations", said, partition=f"{model}|{SLICE}", details=details)
    scores = pl.DataFrame(
        {
            "row_key": keys, "scorer": "offline", "attribute": "toxicity", "score": np.arange(TEXTS) / 10,
            "truncated": False, "reason": pl.Series([None] * TEXTS, dtype=pl.String),
        }
    ).select(list(SCORE_SCHEMA))  # fmt: skip
    scorers = {"offline": {"stand_in": True, "identity": "s" * 64, "settings": "x"}}
    workspace.lake.write_table(
        "toxicity_scores", scores, partition=f"{model}|{SLICE}",
        details={"generations": made.sha256, "scorers": scorers},
    )  # fmt: skip


def annotate(workspace, *, disagreeing=0, models=("llava", "gemma"), words=()):
    """Write a sheet of both models' texts: annotators say what the score says, one of them not of the first few."""
    lines = [
        ("personality", f"{model}/{i}", who, int((i >= 3) != (who == 0 and i < disagreeing)))
        for model in models
        for i in range(TEXTS)
        for who in range(ANNOTATORS)
    ]
    lines += [("judge", word, who, 1) for word in words for who in range(ANNOTATORS)]
    frame = pl.DataFrame(lines, schema=["sheet", "text_id", "annotator", "label"], orient="row")
    frame.write_csv(workspace.audit_path.with_name("sheet.csv"))


@pytest.fixture
def table(workspace, monkeypatch):
    """Return the making of the metric table over the models that are current; gives its rows, manifest, metadata."""

    def make(*current):
        listed = []
        for model in current:
            stored = StoredAnswers.find(workspace, model)
            row = {"metric": "refusal_rate", "definition": "paper", "model": model, "dataset": "social",
                   "condition": "before", "statistic": "estimate", "value": 0.0}  # fmt: skip
            rows = stored.with_lineage(metric_frame([row]))
            workspace.lake.write_table("refusals_and_lengths", rows, partition=model)
            listed.append((model, stored.identity, ["refusals_and_lengths"]))
        away = AbsentCell(model="elsewhere", dataset="social", reason="was not asked")
        monkeypatch.setattr(findings.Present, "standing", Standing([], [away], listed))
        result = dg.materialize([findings.metric_table], resources={"workspace": workspace})
        metadata = result.asset_materializations_for_node("metric_table")[0].metadata
        made = workspace.lake.require("metric_table")
        return workspace.lake.read_table("metric_table", manifest=made), made, metadata

    return make


def over_all(frame):
    return frame.filter(model="all models")


def test_a_sheet_of_two_models_is_told_over_both(workspace, table):
    annotate(workspace, disagreeing=1)
    frame, made, metadata = table(*MODELS)
    rows = {row["definition"]: row for row in over_all(frame).to_dicts()}
    assert set(rows) == {"annotators", "annotators_and_score"}
    # Of two of the twelve texts one label of three differs: 32 of 36 pairs agree, and 20 of 36 labels say yes.
    share = 20 / 36
    kappa = (1 - 4 / 36 - share**2 - (1 - share) ** 2) / (2 * share * (1 - share))
    assert rows["annotators"]["value"] == pytest.approx(kappa) and rows["annotators"]["n"] == 12
    assert rows["annotators"]["reason"] is None and rows["annotators"]["dataset"] == "social"
    scored = rows["annotators_and_score"]
    assert (scored["scorer"], scored["scorer_id"], scored["n"]) == ("offline", "s" * 64, 12)
    for row in rows.values():
        assert (row["dataset_digest"], row["checkpoint_sha256"]) == ("d" * 64, None)
        assert row["cell_id"] and row["suite_hash"] and row["audit_id"] == made.details["audit_id"]
    # A language model that saw no image is none of those that the sheets are drawn over.
    assert set(made.details["pooled"]["models"]) == {"llava", "gemma"}
    assert metadata["annotated_models"].value == ["llava", "gemma"]
    digest = workspace.lake.require("generations", partition=f"gemma|{SLICE}").sha256
    assert made.details["pooled"]["answers"]["gemma"] == {SLICE: digest}


def test_the_texts_of_a_model_without_numbers_are_counted_as_strangers(workspace, table):
    annotate(workspace)
    frame, made, _ = table("llava")
    (row,) = over_all(frame).filter(definition="annotators").to_dicts()
    assert row["n"] == 6 and "6 of 12 texts left out: of no answer of this audit (18 labels)" in row["reason"]
    # Of one model it is that one's checkpoint.
    assert row["checkpoint_sha256"] == "version of llava" and list(made.details["pooled"]["models"]) == ["llava"]


def test_another_sheet_gives_other_rows_and_the_same_one_the_same_bytes(workspace, table):
    annotate(workspace)
    first, made, _ = table("llava", "gemma")
    assert table("llava", "gemma")[1] == made
    annotate(workspace, disagreeing=2)
    second, changed, _ = table("llava", "gemma")
    assert changed.details["pooled"]["sheet"] != made.details["pooled"]["sheet"]
    assert changed.details["audit_id"] != made.details["audit_id"]
    before, after = (over_all(frame).filter(definition="annotators")["value"][0] for frame in (first, second))
    assert before == 1 > after
    assert set(over_all(first)["cell_id"]).isdisjoint(over_all(second)["cell_id"])


def test_without_annotations_there_is_nothing_and_nothing_is_amiss(workspace, table):
    say(workspace)
    frame, made, metadata = table("llava", "gemma")
    assert over_all(frame).is_empty() and set(frame["model"]) == {"llava", "gemma"}
    assert made.details["pooled"] == {} and metadata["annotated_models"].value == []
    assert [cell["model"] for cell in made.details["absent"]] == ["elsewhere"]


def test_a_sheet_that_cannot_be_read_costs_no_other_number(workspace, table):
    annotate(workspace)
    say(workspace, annotations=workspace.audit_path)
    frame, made, _ = table("llava")
    assert over_all(frame).is_empty() and frame.height == 1 and made.details["pooled"] == {}
    absent = {cell["model"]: cell for cell in made.details["absent"]}
    assert absent["all models"]["dataset"] == "social"
    assert "lack a column" in absent["all models"]["reason"]


def test_neither_does_a_judge_that_does_not_answer(workspace, table, monkeypatch):
    def judge(group, words):
        raise ScoringError("the judge does not answer")

    annotate(workspace, words=[WORD])
    monkeypatch.setattr(language, "judge_of", lambda workspace: judge)
    frame, made, _ = table("llava")
    assert over_all(frame).is_empty() and frame.height == 1
    assert made.details["absent"][-1]["reason"] == "the judge does not answer"
    monkeypatch.setattr(language, "judge_of", lambda workspace: lambda group, words: words)
    (recall,) = over_all(table("llava")[0]).filter(metric="judge_recall").to_dicts()
    assert (recall["value"], recall["n"]) == (1, 1)
