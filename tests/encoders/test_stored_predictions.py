"""Predictions that were made elsewhere: each image has the choice that its row says, or there is an error."""

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from plumbline.catalog.suites import load_suite
from plumbline.checkpoints.addresses import parse_address
from plumbline.config.audit import Audit
from plumbline.config.entries import EncoderEntry
from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.registry import reader_for
from plumbline.encoders.families import FAMILIES, answers
from plumbline.encoders.folders import checkpoint_files
from plumbline.encoders.stored_predictions import PredictionTable, find_rows, require_same_table, table_of_dataset
from plumbline.errors import CheckpointError, EncodingError
from plumbline.metrics.cell import Cell, SuiteLogits
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.zero_shot import sanity_rows

CRIME, POOLED = load_suite("crime"), load_suite("crime_pooled")
RECORDS = pl.DataFrame({"path": ["a.jpg", "b.jpg", "c.jpg"], "image_id": ["1" * 64, "2" * 64, "3" * 64]})
ROWS = f"file,crime,crime_pooled\nb.jpg,a photo of a thief,thief\n{'1' * 64},white man,gorilla\nc.jpg,nobody,thief\n"


def table(folder, text, **changes):
    (folder / "t.csv").write_text(text, "utf-8")
    settings = {"names": {"nobody": "non_human"}, "image": "file"} | changes
    return PredictionTable(folder / "t.csv", "faces", **settings)


def word(suite, marked):
    assert (marked.max(axis=1) == 1).all()
    return [suite.candidates[i].id for i in marked.argmax(axis=1)]


def test_a_row_an_image_by_path_or_hash_word_prompt_or_category(tmp_path):
    chosen, surplus = table(tmp_path, ROWS + "z.jpg,thief,thief\n").chosen([CRIME, POOLED], RECORDS)
    assert word(CRIME, chosen["crime"]) == ["white man", "thief", "animal"]
    assert word(POOLED, chosen["crime_pooled"]) == ["gorilla", "thief", "thief"]
    assert surplus == 1


@pytest.mark.parametrize(
    ("text", "what", "where", "found"),
    [
        (ROWS.replace("c.jpg,nobody,thief\n", ""), "1 of 3 images of `faces` have no", "column `file`", "c.jpg"),
        (ROWS + "b.jpg,thief,thief\n", "1 rows are of an image", "line 5, column `file`", "as in line 2"),
        (ROWS.replace("white man", "White man"), "1 of 3 predictions are no", "line 3, column `crime`", "White man"),
        (ROWS.replace("white man", ""), "1 of 3 predictions are no candidate", "line 3, column `crime`", "''"),
        (ROWS.replace("white man,", ""), "1 rows of the table of predictions cannot be read", "line 3", None),
        (ROWS.replace("file", "name"), "does not say which image a row is", "t.csv", "name"),
        (ROWS.replace("crime,", "crimes,"), "no predictions of the suite `crime`", "t.csv", "crimes"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_rows_is_told_by_line_and_column_and_counted(tmp_path, text, what, where, found):
    with pytest.raises(EncodingError) as refused:
        table(tmp_path, text).chosen([CRIME, POOLED], RECORDS)
    assert what in refused.value.what and where in str(refused.value.where)
    assert found is None or found in str(refused.value.found)


@pytest.mark.parametrize("reader", ["folder", "listing"])
def test_the_column_of_images_is_the_one_that_is_named_else_the_datasets_own(tmp_path, reader):
    (tmp_path / "faces.csv").write_text("file,photo,crime\na.jpg,a.jpg,thief\n")
    mapped = ColumnMap.model_validate({"index": "people.csv", "path": "photo", "columns": {"race": "race"}})
    about = {"reader": reader, "root": tmp_path, "names": {}}
    for columns, named, column in ((mapped, "file", "file"), (mapped, None, "photo"), (None, None, "path")):
        found = table_of_dataset(tmp_path, "faces", "e", columns=columns, image=named, **about)
        assert found.image == column
    with pytest.raises(EncodingError, match=r"does not say which image[\s\S]*a column `path`"):
        found.require_images()


def test_counts_come_out_as_they_went_in(tmp_path):
    text = "race,people,thief,gorilla\nBlack,3,2,0\nWhite,1,0,4\n"
    counted = ColumnMap.model_validate({"index": "t.csv", "columns": {"race": "race"}})
    stored = table(tmp_path, text, names={"people": "demographic"}, counts=counted)
    records = ingest(reader_for("counts", counted), tmp_path, dataset="faces").records
    chosen, surplus = stored.chosen([CRIME], records)
    categories = np.array([candidate.category for candidate in CRIME.candidates])[chosen["crime"].argmax(axis=1)]
    pairs = list(zip(records["race"], categories.tolist()))
    tallied = {pair: pairs.count(pair) for pair in pairs}
    expected = {
        ("Black", "demographic"): 3,
        ("Black", "crime"): 2,
        ("White", "demographic"): 1,
        ("White", "non_human"): 4,
    }
    assert (tallied, surplus) == (expected, 0)
    # Who is pictured was not asked of `people`: nobody is held to be badly recognised.
    cell = Cell("e", "faces", records, {"crime": SuiteLogits(CRIME, chosen["crime"])}, {})
    assert sanity_rows(cell, settings=MetricSettings()).is_empty()
    assert not stored.answers(load_suite("communion"))
    with pytest.raises(EncodingError, match="3 of 3 columns of counts are of no candidate of `communion`"):
        stored.require([load_suite("communion")])


def test_counts_answer_only_for_the_table_that_the_dataset_was_read_from(tmp_path):
    (tmp_path / "one.csv").write_text("race,thief\nx,1\n")
    (tmp_path / "two.csv").write_text("race,thief\nx,2\n")
    require_same_table(tmp_path / "one.csv", tmp_path / "one.csv")
    with pytest.raises(EncodingError, match="not those that the dataset was read from"):
        require_same_table(tmp_path / "two.csv", tmp_path / "one.csv")


def test_a_changed_table_is_another_checkpoint_and_a_note_beside_it_is_not(tmp_path):
    def version(address="stored:tables"):
        return checkpoint_files("e", address, project=tmp_path, fetched=tmp_path).version

    (tmp_path / "tables").mkdir()
    with pytest.raises(CheckpointError, match="not on this disk"):
        version()
    (tmp_path / "tables" / "t.csv").write_text("race,thief\nx,1\n")
    first = version()
    (tmp_path / "tables" / "README.md").write_text("whence")
    assert version() == first
    (tmp_path / "tables" / "t.csv").write_text("race,thief\nx,2\n")
    assert version() != first
    assert parse_address("stored:tables", project=tmp_path).folder == tmp_path / "tables"


def test_choices_answer_outcomes_and_nothing_that_needs_more():
    assert [name for name in ("crime", "communion", "agency", "perception", "templates", "markedness", "pata_captions")
            if answers(FAMILIES["stored"], load_suite(name))] == ["crime", "communion", "agency"]  # fmt: skip
    assert not answers(FAMILIES["stored"], load_suite("trident", classes="fairface"))


def test_settings_of_stored_predictions_belong_to_their_address():
    stored = EncoderEntry.model_validate(
        {"address": "stored:x", "predictions": {"checkpoint": "ViT-L-14/laion400m_e32"}, "family": "stored"}
    )
    assert stored.study_address == "ViT-L-14/laion400m_e32"
    for entry in ({"address": "local-dir:x", "predictions": {}}, {"address": "local-dir:x", "family": "stored"},
                  {"address": "stored:x", "family": "clip"}):  # fmt: skip
        with pytest.raises(ValidationError):
            EncoderEntry.model_validate(entry)


def test_the_first_encoder_that_can_label_is_the_labeller():
    datasets = {"d": {"reader": "fairface", "root": "x"}}
    asked = {"datasets": datasets, "audit": [{"suites": ["crime"]}]}
    stored, model = {"address": "stored:x"}, {"address": "local-dir:y"}
    assert Audit.model_validate(asked | {"encoders": {"s": stored}}).labeller is None
    assert Audit.model_validate(asked | {"encoders": {"s": stored, "m": model}}).labeller == "m"


def test_a_name_of_very_many_parts_takes_no_more_memory_than_others():
    import tracemalloc

    images = pl.DataFrame({"path": ["faces/a.jpg", "faces/b.jpg"], "image_id": ["1", "2"]})
    tracemalloc.start()
    found, again = find_rows(images, ["a/" * 20_000 + "faces/b.jpg", "/data/faces/a.jpg", "x/" * 20_000 + "c.jpg"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.tolist(), again) == ([1, 0], []) and most < 1 << 20


def test_a_row_that_names_one_image_exactly_is_of_no_other():
    images = pl.DataFrame({"path": ["./a/0.JPG", "a/0.JPG", "b/1.jpg"], "image_id": ["0" * 64, "1" * 64, "2" * 64]})
    found, again = find_rows(images, ["a/0.JPG", "/data/b/1.jpg"])
    assert found.tolist() == [-1, 0, 1] and not again
