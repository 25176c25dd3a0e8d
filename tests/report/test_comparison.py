"""Published beside measured: what is covered, what is not, what must not be compared."""

import math

import polars as pl
import pytest

from plumbline.catalog.published import PUBLISHED_SCHEMA
from plumbline.catalog.schema import metric_frame
from plumbline.errors import MetricError
from plumbline.reasons import reason
from plumbline.report.comparison import COMPARISON_SCHEMA, FIT_SCHEMA, checkpoint_fits, compare_with_published

ENCODERS = {"clip": "ViT-B-32-quickgelu/openai", "mine": "local-dir:checkpoints/mine"}
DATASETS = {"faces": "fairface", "scenes": "pata"}
SKEW = {
    "metric": "max_skew", "definition": "mean_over_pairs", "model": "clip", "dataset": "faces", "suite": "crime",
    "event": "crime", "attribute": "gender", "condition": "before", "statistic": "estimate",
    "value": 1.25, "ci_low": 1.1, "ci_high": 1.4, "n": 10954,
}  # fmt: skip
HARM = SKEW | {"metric": "harm_rate", "definition": "top1", "attribute": None, "value": 0.083, "ci_low": 0.08,
               "ci_high": 0.088}  # fmt: skip


def compare(*rows, encoders=ENCODERS, datasets=DATASETS, **more):
    return compare_with_published(metric_frame(list(rows)), encoders=encoders, datasets=datasets, **more)


def only(frame):
    assert frame.height == 1, frame
    return frame.row(0, named=True)


def test_a_covered_cell_stands_beside_its_measurement():
    row = only(compare(SKEW))
    expected = {
        "paper": "data_matters_most", "table": "1", "row": "Fair | CLIP | B/32 | 400M", "column": "max s_G^c",
        "model": "clip", "dataset": "faces", "address": "ViT-B-32-quickgelu/openai", "checkpoint": "clip-b32-400m",
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert (row["published"], row["rounding"], row["measured"]) == (1.19, 0.005, 1.25)
    assert row["difference"] == pytest.approx(0.06)
    assert (row["ci_low"], row["ci_high"], row["n"], row["published_n"]) == (1.1, 1.4, 10954, 10954)
    assert row["within"] is True and row["note"] is None and row["unit"] == "relative gap"


def test_a_printed_percentage_is_compared_as_a_share():
    row = only(compare(HARM))
    assert (row["published"], row["rounding"], row["column"]) == (0.08, 0.005, "% C")


@pytest.mark.parametrize(
    ("low", "high", "value", "within"),
    [
        (1.0, 1.185, 1.1, True),  # 1.19 can have been 1.185
        (1.0, 1.184, 1.1, False),
        (1.195, 1.3, 1.2, True),
        (1.196, 1.3, 1.2, False),
        (None, None, 1.195, True),
        (math.nan, math.nan, 1.185, True),
        (None, None, 1.196, False),
    ],
)
def test_within_is_the_interval_widened_by_what_rounding_hides(low, high, value, within):
    row = only(compare(SKEW | {"value": value, "ci_low": low, "ci_high": high}))
    assert row["within"] is within


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "mine"},
        {"dataset": "elsewhere"},
        {"definition": "smoothed"},
        {"attribute": "age_group"},
        {"event": "non_human"},
        {"suite": "crime_pooled"},
        {"condition": "some_other"},
        {"statistic": "sd"},
        {"group": "man"},
        {"k": 10},
        {"seed": 1},
    ],
    ids=str,
)
def test_what_is_not_the_same_thing_is_not_compared(changed):
    frame = compare(SKEW | changed)
    assert frame.is_empty() and dict(frame.schema) == {name: kind() for name, kind in COMPARISON_SCHEMA.items()}


def test_the_planted_world_has_no_published_numbers():
    encoders = {"small-atlas-3k": "local-dir:plumbline/world/checkpoints/small-atlas-3k"}
    frame = compare(SKEW | {"model": "small-atlas-3k"}, encoders=encoders)
    assert frame.is_empty() and frame.columns == list(COMPARISON_SCHEMA)
    assert checkpoint_fits(frame).is_empty() and checkpoint_fits(frame).columns == list(FIT_SCHEMA)


def test_a_suspect_number_is_shown_and_never_compared():
    row = only(
        compare(
            HARM | {"suite": "communion", "event": "negative_communion", "model": "large", "dataset": "scenes",
                    "condition": "bias_prompts", "value": 0.1246, "n": 3948},
            encoders={"large": "ViT-L-14-quickgelu/openai"},
        )
    )  # fmt: skip
    assert (row["status"], row["published"], row["measured"]) == ("suspect", 0.1246, 0.1246)
    assert row["difference"] is None and row["within"] is None
    assert "stands in another row" in row["note"]


def test_a_number_that_cannot_be_compared_as_printed_says_why():
    rows = {"metric": "competence_words", "definition": "paper", "model": "clip", "dataset": "faces",
            "condition": "before", "statistic": "mean", "value": 3.0}  # fmt: skip
    printed = printed_rows(
        {"metric": "competence_words", "definition": "paper", "dataset": "fairface", "checkpoint": "clip-b32-400m",
         "condition": "before", "statistic": "mean", "value": 3.0, "rounding": 0.5, "status": "not_comparable",
         "note": "the scale is not stated"}
    )  # fmt: skip
    row = only(compare(rows, published=printed))
    assert row["difference"] is None and row["within"] is None and row["note"] == "the scale is not stated"


def printed_rows(*rows):
    common = {"paper": "p", "table": "1", "row": "r", "column": "c", "printed": "x", "status": "as_printed"}
    table = [[(common | row).get(name) for name in PUBLISHED_SCHEMA] for row in rows]
    return pl.DataFrame(table, schema=PUBLISHED_SCHEMA, orient="row")


def test_another_number_of_images_is_said():
    row = only(compare(SKEW | {"n": 9000}))
    assert row["note"] == "published with n = 10954, measured with n = 9000"
    assert row["within"] is True


def test_what_could_not_be_measured_says_why():
    row = only(compare(SKEW | {"value": math.nan, "ci_low": None, "ci_high": None, "reason": reason("too_few_groups")}))
    assert row["measured"] is None and row["difference"] is None and row["within"] is None
    assert row["note"] == "not measured: fewer than two groups have images"


def test_a_reservation_about_the_measurement_is_kept():
    row = only(compare(SKEW | {"reason": reason("small_groups", min_group=30, groups=["man"])}))
    assert row["note"] == "of the measurement: fewer than 30 images in man" and row["within"] is True


def test_two_candidates_for_one_published_checkpoint_are_both_compared_and_counted():
    encoders = {"l14": "ViT-L-14-quickgelu/openai", "l14-336": "ViT-L-14-336-quickgelu/openai"}
    rows = [
        SKEW | {"model": "l14", "value": 0.5, "ci_low": 0.4, "ci_high": 0.6},
        SKEW | {"model": "l14-336", "value": 0.25, "ci_low": 0.2, "ci_high": 0.3},
        HARM | {"model": "l14", "value": 0.14, "ci_low": 0.13, "ci_high": 0.15},
        HARM | {"model": "l14-336", "value": 0.11, "ci_low": 0.10, "ci_high": 0.12},
    ]
    frame = compare(*rows, encoders=encoders)
    assert frame["checkpoint"].to_list() == ["clip-l14-400m"] * 4
    assert frame["model"].to_list() == ["l14", "l14-336"] * 2
    fits = {(row["model"], row["metric"]): row for row in checkpoint_fits(frame).iter_rows(named=True)}
    assert (fits["l14", "max_skew"]["cells"], fits["l14", "max_skew"]["within"]) == (1, 0)
    assert (fits["l14-336", "max_skew"]["cells"], fits["l14-336", "max_skew"]["within"]) == (1, 1)
    assert fits["l14-336", "max_skew"]["mean_absolute_difference"] == pytest.approx(0.02)
    assert fits["l14", "harm_rate"]["within"] == 1 and fits["l14-336", "harm_rate"]["within"] == 0


def test_the_gain_of_logit_adjustment_in_the_text_is_compared():
    row = only(
        compare(
            {"metric": "macro_accuracy_gain", "definition": "test_rows", "model": "clip", "dataset": "celebrities",
             "suite": "trident", "attribute": "gender", "probe": "person", "condition": "logit_adjustment",
             "statistic": "mean", "value": 0.36, "ci_low": 0.35, "ci_high": 0.37, "n": 1000},
            datasets={"celebrities": "celeba"},
        )
    )  # fmt: skip
    assert (row["paper"], row["published"], row["within"]) == ("tripro", 0.3781, False)
    assert "percentage points" in row["note"]


def test_a_printed_p_value_is_compared_with_that_of_the_estimate():
    row = {"metric": "confound_vs_protected", "definition": "ttest", "model": "clip", "dataset": "causal",
           "suite": "perception", "event": "positive", "attribute": "pose", "reference_group": "gender",
           "condition": "before", "statistic": "estimate", "value": -0.1, "ci_low": -0.2, "ci_high": 0.0, "p": 0.163,
           "n": 600}  # fmt: skip
    found = only(
        compare(row, row | {"statistic": "t", "value": -1.5}, datasets={"causal": "causalface"}).filter(statistic="p")
    )
    assert (found["published"], found["measured"], found["within"]) == (0.16, 0.163, True)
    assert found["ci_low"] is None and found["column"] == "p-value"


def test_numbers_of_the_text_space_alone_need_no_dataset():
    row = {"metric": "valence_gap", "definition": "ttest", "model": "clip", "dataset": "text", "suite": "perception",
           "attribute": "belief", "group": "negative", "reference_group": "cross", "condition": "before",
           "statistic": "estimate", "value": 0.01, "p": 0.3, "n": 8}  # fmt: skip
    found = only(compare(row, datasets={}))
    assert (found["table"], found["published"], found["measured"], found["within"]) == ("C.3", 0.59, 0.3, False)


EFFECT = {
    "factor": "size", "level_first": "B/32", "level_second": "L/14", "held": "400M, LAION", "first": "b32",
    "second": "l14", "dataset": "faces", "suite": "crime", "attribute": "gender", "event": "crime",
    "metric": "max_skew", "definition": "mean_over_pairs", "value": -1.6, "ci_low": -1.8, "ci_high": -1.4, "p": 0.01,
    "q": 0.02, "n": 10954, "reason": None, "value_first": 0.5, "value_second": 2.1,
}  # fmt: skip
PAIR = {"b32": "ViT-B-32-quickgelu/laion400m_e32", "l14": "ViT-L-14/laion400m_e32"}


def test_an_effect_is_compared_with_the_recomputed_difference_not_with_the_copy_error():
    row = only(compare(encoders=PAIR, effects=pl.DataFrame([EFFECT], schema_overrides={"reason": pl.String})))
    assert (row["table"], row["status"], row["published"]) == ("2", "recomputed", -1.73)
    assert (row["model"], row["reference_model"], row["factor"]) == ("b32", "l14", "size")
    assert row["within"] is True and row["difference"] == pytest.approx(0.13)
    assert "copy error" in row["note"]


def test_an_effect_listed_the_other_way_round_is_turned_to_the_sign_of_the_paper():
    turned = EFFECT | {"factor": "width", "first": "l14", "second": "b32", "value": 1.6, "ci_low": 1.4, "ci_high": 1.8}
    row = only(compare(encoders=PAIR, effects=pl.DataFrame([turned], schema_overrides={"reason": pl.String})))
    assert (row["model"], row["reference_model"], row["published"]) == ("b32", "l14", -1.73)
    assert (row["measured"], row["ci_low"], row["ci_high"]) == (-1.6, -1.8, -1.4)


@pytest.mark.parametrize("changed", [{"definition": "smoothed"}, {"dataset": "x"}, {"attribute": None}, {"first": "x"}])
def test_another_effect_is_not(changed):
    effects = pl.DataFrame([EFFECT | changed], schema_overrides={"reason": pl.String, "attribute": pl.String})
    assert compare(encoders=PAIR, effects=effects).is_empty()


def test_rows_come_in_the_order_of_the_papers():
    frame = compare(HARM, SKEW | {"attribute": "race"}, SKEW, SKEW | {"dataset": "scenes"})
    assert frame["column"].to_list() == ["max s_G^c", "μ max s_R^c", "% C", "max s_G^c"]


def test_a_frame_without_the_needed_columns_is_refused():
    with pytest.raises(MetricError, match=r"lacks columns(.|\n)*add ci_high"):
        compare_with_published(metric_frame([SKEW]).drop("ci_high"), encoders=ENCODERS, datasets=DATASETS)
    with pytest.raises(MetricError, match=r"factor effects lacks columns(.|\n)*add first"):
        compare(effects=pl.DataFrame([EFFECT]).drop("first"))
