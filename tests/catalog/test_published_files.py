"""A data file of published numbers that is wrong is refused, with file, line and what is wrong."""

import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from plumbline.catalog.published import read_values, read_words
from plumbline.digests import digest_bytes
from plumbline.errors import StorageError

GRID = "Model,A / Mean,A / 90%\nsmall,0.10,0.20\nlarge,0.30,n/a\n"
DESCRIPTION = """
id: paper
version: 1
source: by hand
vocabularies:
  models: {{small: {{checkpoint: align-base}}, large: {{checkpoint: owlv2-base}}}}
  tasks: {{A: {{metric: m, definition: d}}}}
  statistics: {{Mean: {{statistic: mean}}, 90%: {{statistic: p90}}}}
tables:
  "1":
    title: A table
    file: table_1.csv
    sha256: {sha256}
    rows: [models]
    columns: [tasks, statistics]
    all: {{dataset: fairface, unit: share}}
    absent: {{n/a: not measured}}
"""


def written(folder: Path, grid: str = GRID, description: str = DESCRIPTION, sha256: str | None = None) -> Path:
    (folder / "paper").mkdir()
    (folder / "paper" / "table_1.csv").write_text(grid)
    (folder / "paper.yaml").write_text(description.format(sha256=sha256 or digest_bytes(grid.encode())))
    return folder


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(StorageError) as caught:
        read_values(folder)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_a_table_is_read_into_one_row_a_cell(tmp_path):
    frame = read_values(written(tmp_path))
    assert frame.select("row", "column", "checkpoint", "statistic", "value", "status", "note").rows() == [
        ("small", "A / Mean", "align-base", "mean", 0.1, "as_printed", None),
        ("small", "A / 90%", "align-base", "p90", 0.2, "as_printed", None),
        ("large", "A / Mean", "owlv2-base", "mean", 0.3, "as_printed", None),
        ("large", "A / 90%", "owlv2-base", "p90", None, "absent", "not measured"),
    ]


def test_a_changed_table_is_refused(tmp_path):
    refused(written(tmp_path, sha256="a" * 64), "has changed", "paper/table_1.csv", "a" * 64)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (GRID.replace("large", "huge"), ("line 3", "huge", "small, large", "`models`", "paper.yaml")),
        (GRID.replace("90%", "95%"), ("line 1", "95%", "Mean, 90%")),
        (GRID.replace("0.30", "0,30").replace("0,30", '"0,30"'), ("line 3, column A / Mean", "no number", "0,30")),
        (GRID.replace("0.30", ""), ("line 3, column A / Mean", "no number")),
    ],
)
def test_a_table_that_its_description_does_not_explain_is_refused(tmp_path, grid, words):
    refused(written(tmp_path, grid=grid), *words)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("title: A table", "titel: A table", ("key tables.1.title", "Field required")),
        ("version: 1", "version: one", ("version", "integer")),
        ("tables:", "tables: [", ("not YAML", "paper.yaml")),
        ("metric: m", "metrik: m", ("unknown key", "metrik")),
        ("align-base", "align-huge", ("no such checkpoint", "align-huge", "align-base")),
        ("unit: share", "unit: share, printed_unit: miles", ("no number", "miles")),
        ("absent:", "status: guessed\n    absent:", ("status", "suspect")),
        (
            "absent:",
            "recomputed: {{source: '7', columns: {{}}, pairs: {{}}}}\n    absent:",
            ("table 1", "`7`, which is not printed"),
        ),
        (
            "absent:",
            "recomputed: {{source: '1', columns: {{}}, pairs: {{}}}}\n    absent:",
            ("table 1", "`1`, which is not printed"),
        ),
    ],
)
def test_a_description_with_a_mistake_is_refused(tmp_path, before, after, words):
    assert before in DESCRIPTION
    refused(written(tmp_path, description=DESCRIPTION.replace(before, after, 1)), *words)


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(Path(str(files("plumbline.catalog") / "published")), tmp_path / "published"))


def test_a_difference_of_a_cell_that_is_not_there_is_refused(copied):
    description = copied / "data_matters_most.yaml"
    text = description.read_text("utf-8")
    description.write_text(text.replace("[openclip-b32-2b, openclip-l14-2b]", "[openclip-b32-2b, align-base]"), "utf-8")
    refused(copied, "source lacks", "max s_G^c of align-base")


def test_a_pair_that_is_not_explained_is_refused(copied):
    description = copied / "data_matters_most.yaml"
    text = description.read_text("utf-8")
    description.write_text(text.replace("OpenCLIP B/32 | 400M vs 2B:", "OpenCLIP B/16 | 400M vs 2B:"), "utf-8")
    refused(copied, "not explained", "OpenCLIP B/32 | 400M vs 2B")


def test_a_changed_word_list_is_refused(copied):
    words = copied / "lvlm_counterfactuals" / "table_24.csv"
    words.write_text(words.read_text("utf-8").replace("loose", "lose"), "utf-8")
    with pytest.raises(StorageError, match=r"has changed(.|\n)*table_24.csv"):
        read_words(copied)
