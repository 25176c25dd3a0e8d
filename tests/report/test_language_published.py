"""Published numbers of generative models: by checkpoint, subset, prompt and the kind of the scorer."""

import pytest

from plumbline.catalog.published import published_values
from plumbline.catalog.schema import metric_frame
from plumbline.report.comparison import checkpoint_fits, compare_with_published

MODELS = {"mine": "hf-hub:llava-hf/llava-1.5-7b-hf@0123abc", "api": "gpt-4o-2024-05-13", "other": "local-dir:x"}
DATASETS = {"faces": "socialcounterfactuals", "scenes": "pata"}
MAX = {
    "metric": "max_toxicity", "definition": "paper", "model": "mine", "dataset": "faces", "suite": "generation",
    "attribute": "race_gender", "prompt": "describe", "condition": "before", "scorer": "google", "statistic": "mean",
    "value": 0.1, "ci_low": 0.05, "ci_high": 0.15, "n": 900,
}  # fmt: skip
PERSPECTIVE = {"google": "perspective", "words": "offline"}


@pytest.fixture(scope="module")
def published():
    return published_values()


def compare(published, *rows, scorers=PERSPECTIVE):
    return compare_with_published(
        metric_frame(list(rows)), encoders=MODELS, datasets=DATASETS, published=published, scorers=scorers
    )


def test_a_measurement_by_the_same_kind_of_scorer_is_compared(published):
    row = compare(published, MAX).row(0, named=True)
    assert (row["table"], row["checkpoint"], row["scorer"]) == ("1", "llava-1.5-7b", "perspective")
    assert row["column"] == "Describe / Mean" and row["measured"] == 0.1 and row["within"] is not None


@pytest.mark.parametrize(
    "scorers",
    [{"google": "classifier"}, {"google": "stored"}, {}, {"perspective": "perspective"}, None],
    ids=["classifier", "stored", "unknown", "another id", "ids as kinds"],
)
def test_a_measurement_by_another_scorer_is_not(published, scorers):
    assert compare(published, MAX, scorers=scorers).is_empty()


def test_an_id_is_no_kind_where_kinds_are_given(published):
    named = MAX | {"scorer": "perspective"}
    assert compare(published, named, scorers={"perspective": "classifier"}).is_empty()
    assert compare(published, named, scorers={}).is_empty()
    assert compare(published, named, scorers=None).height == 1


def test_numbers_without_a_scorer_need_none(published):
    rating = MAX | {
        "metric": "rating", "attribute": "physical_gender", "group": "obese_woman", "prompt": "hiring",
        "scorer": None, "value": 6.0, "ci_low": 5.0, "ci_high": 7.0,
    }  # fmt: skip
    row = compare(published, rating, scorers={}).row(0, named=True)
    assert (row["table"], row["checkpoint"], row["model"]) == ("29", "llava-1.5-7b", "mine")


def test_the_model_of_an_endpoint_goes_by_its_name(published):
    refused = MAX | {
        "metric": "refusal_rate", "model": "api", "attribute": "physical_gender", "group": "obese_man",
        "prompt": "characteristics", "scorer": None, "statistic": "estimate", "value": 0.04, "ci_low": 0.03,
        "ci_high": 0.05,
    }  # fmt: skip
    row = compare(published, refused).row(0, named=True)
    assert (row["table"], row["checkpoint"], row["published"], row["within"]) == ("14", "gpt-4o", 0.04, True)


KAPPA = {
    "metric": "fleiss_kappa", "definition": "annotators", "model": "all models", "dataset": "faces",
    "suite": "generation", "prompt": "personality", "condition": "before", "statistic": "estimate", "value": 0.85,
    "ci_low": 0.8, "ci_high": 0.9, "n": 50,
}  # fmt: skip
JUDGED = KAPPA | {"metric": "judge_recall", "definition": "majority_of_three", "prompt": None, "value": 0.5,
                  "ci_low": 0.4, "ci_high": 0.6, "n": 120}  # fmt: skip


def pooled(published, *rows, models=("mine", "api"), **more):
    return compare_with_published(
        metric_frame(list(rows)), encoders=MODELS, datasets=more.get("datasets", DATASETS), published=published,
        scorers=PERSPECTIVE, pooled=models,
    )  # fmt: skip


def test_what_was_printed_of_all_models_stands_beside_the_numbers_over_all_models(published):
    scored = KAPPA | {"definition": "annotators_and_score", "scorer": "google"}
    found = pooled(published, KAPPA, scored, JUDGED)
    assert found.select("published", "measured", "within").rows() == [
        (0.8788, 0.85, True), (0.8794, 0.85, True), (0.29, 0.5, False),
    ]  # fmt: skip
    assert set(found["model"]) == {"all models"} and found["checkpoint"].null_count() == 3
    assert set(found["address"]) == {f"{MODELS['mine']}, {MODELS['api']}"}
    assert found["note"].to_list() == [None, None, "300 words, 50 of each of six groups, were annotated"]
    assert checkpoint_fits(found).is_empty()


def test_the_kappa_with_another_kind_of_scorer_is_another_number(published):
    stand_in = KAPPA | {"definition": "annotators_and_score", "scorer": "words"}
    assert pooled(published, KAPPA, stand_in)["definition"].to_list() == ["annotators"]


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({"model": "mine"}, {}),  # one model's part of the sheet
        ({}, {"models": ("mine", "other")}),  # a model that no study asked
        ({}, {"models": ()}),
        ({}, {"datasets": {}}),  # the planted world
        ({"dataset": "all datasets"}, {}),
    ],
    ids=["of one model", "a foreign model", "nothing pooled", "planted", "several datasets"],
)
def test_other_agreement_is_not_what_was_printed(published, changed, more):
    assert pooled(published, KAPPA | changed, JUDGED | changed, **more).is_empty()


def test_one_pooled_model_is_still_no_checkpoint(published):
    found = pooled(published, KAPPA, MAX | {"model": "all models"}, models=("mine",))
    assert found["metric"].to_list() == ["fleiss_kappa"] and found["checkpoint"].to_list() == [None]


def test_real_images_are_compared_by_group(published):
    group = MAX | {
        "metric": "toxicity", "definition": "score", "dataset": "scenes", "group": "black_woman", "statistic": "p90",
        "prompt": "characteristics",
    }  # fmt: skip
    assert compare(published, group)["table"].to_list() == ["9"]


@pytest.mark.parametrize("changed", [{"model": "other"}, {"prompt": "hiring"}, {"instruction": "M1"}, {"dataset": "x"}])
def test_what_no_paper_printed_is_passed_over(published, changed):
    assert compare(published, MAX | changed).is_empty()
