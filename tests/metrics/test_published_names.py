"""What the papers printed goes by the names that the metric families give the same thing."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from plumbline.catalog.published import published_values
from plumbline.catalog.suites import load_suite
from plumbline.metrics.registry import FAMILIES
from plumbline.metrics.text_space import geometry_rows, prompt_embeddings
from plumbline.report.comparison import compare_with_published

CLIP = {"encoder": "ViT-B-32-quickgelu/openai"}
DMM, SOCIAL = "data_matters_most", "social_perception"


def printed(paper, table):
    """Return the cells of a table that are of CLIP ViT-B/32."""
    return published_values().filter(paper=paper, table=table, checkpoint="clip-b32-400m")


def covered(rows, reader):
    found = compare_with_published(rows, encoders=CLIP, datasets={"faces": reader})
    assert found["measured"].null_count() == 0
    return found


def columns(frame, paper, table):
    return set(frame.filter(paper=paper, table=table)["column"])


def test_every_number_of_table_1_is_measured(cell, quick):
    rows = FAMILIES["outcome_metrics"].compute(cell, settings=quick)
    for reader in ("fairface", "pata"):
        found = covered(rows, reader)
        expected = printed(DMM, "1").filter(dataset=reader)
        assert found.height == expected.height == 10
        assert columns(found, DMM, "1") == set(expected["column"])


def test_harm_by_bias_size_and_template_robustness_are_measured(make_cell, quick):
    rows = FAMILIES["robustness_metrics"].compute(make_cell(suites=("templates",)), settings=quick)
    found = compare_with_published(rows, encoders=CLIP, datasets={"faces": "pata"})
    for table in ("6", "7"):
        assert columns(found, DMM, table) == set(printed(DMM, table)["column"])
    # An elbow may not be reached; everything else is a number.
    assert found.filter(pl.col("measured").is_null())["metric"].is_in(["bias_size_elbow"]).all()


def test_the_neutral_control_is_measured(make_cell, quick):
    rng = np.random.default_rng(0)
    drawn = make_cell(n=40, suites=("templates",))
    faces = replace(drawn, images=rng.normal(size=(40, 16)).astype(np.float32))
    found = covered(FAMILIES["robustness_metrics"].compute(faces, settings=quick), "neutral")
    assert columns(found, DMM, "5") == set(printed(DMM, "5")["column"])
    assert found["note"].str.contains("published with n = 19, measured with n = 40").all()


@pytest.fixture
def varied(make_cell):
    """Return faces on which one thing at a time is varied."""
    n = 480
    drawn = make_cell(n=n, suites=("perception",))
    dimension = ["age", "lighting", "pose", "smiling"]
    records = drawn.records.with_columns(
        pl.Series("dimension", [dimension[i % 4] for i in range(n)]),
        pl.Series("level", [str((i // 4) % 5 - 2) for i in range(n)]),
        pl.Series("set_id", [str(i // 160) for i in range(n)]),
        pl.Series("gender", ["man", "woman"] * (n // 2)),
        pl.Series("race", ["White" if (i // 20) % 2 else "Black" for i in range(n)]),
    )
    return replace(drawn, records=records)


def test_the_regressions_and_tests_of_confounds_are_measured(varied, quick):
    assert load_suite("perception").id in varied.logits
    found = compare_with_published(
        FAMILIES["confound_metrics"].compute(varied, settings=quick), encoders=CLIP, datasets={"faces": "causalface"}
    )
    lines = found.filter(table="B.1")
    assert set(lines.select("row", "column").iter_rows()) == set(
        printed(SOCIAL, "B.1").select("row", "column").iter_rows()
    )
    assert (
        lines["within"].null_count() == lines.height and lines["note"].str.contains("do not fit the paper's text").all()
    )
    assert columns(found, SOCIAL, "B.2") == {"t-statistic", "p-value"}


def test_the_tests_of_the_text_space_are_measured(quick):
    rng, suite = np.random.default_rng(0), load_suite("perception")
    embedded = {candidate.text: rng.normal(size=8).astype(np.float32) for candidate in suite.candidates}
    rows = geometry_rows("encoder", suite, prompt_embeddings(suite, embedded), settings=quick)
    found = compare_with_published(rows, encoders=CLIP, datasets={})
    expected = printed(SOCIAL, "C.3").select("row", "column")
    assert expected.height == 6
    assert found.filter(table="C.3").select("row", "column").rows() == expected.rows()
