"""Tables of counts and of images that are elsewhere: every image that was counted is there, and nothing is repaired."""

from pathlib import Path

import polars as pl
import pytest
from pydantic import ValidationError

from plumbline.config.entries import DatasetEntry
from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.ingestion import folder_digest, ingest
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

GOOD = "true,Female,thief,all\nf,3,1,4\nm,2,0,2\n"
MAP = ColumnMap.model_validate(
    {"index": "t.csv", "columns": {"gender": "true"}, "values": {"gender": {"f": "woman", "m": "man"}}, "total": "all"}
)


def read(folder: Path, text: str, column_map: ColumnMap = MAP, reader: str = "counts"):
    (folder / "t.csv").write_text(text, "utf-8")
    return ingest(reader_for(reader, column_map), folder, dataset="d")


def test_every_image_that_was_counted_is_a_record_of_its_group(tmp_path):
    ingested = read(tmp_path, GOOD)
    assert ingested.listed == ingested.records.height == 6
    assert ingested.records.select("path", "gender").rows() == [
        ("2/Female/1", "woman"), ("2/Female/2", "woman"), ("2/Female/3", "woman"), ("2/thief/1", "woman"),
        ("3/Female/1", "man"), ("3/Female/2", "man"),
    ]  # fmt: skip
    assert ingested.records["image_id"].n_unique() == 6
    assert ingested.folder_digest == folder_digest(reader_for("counts", MAP), tmp_path)


def test_a_table_of_parquet_is_read_like_one_of_text(tmp_path):
    frame = pl.DataFrame({"true": ["f", "m"], "Female": [3.0, 2.0], "thief": [1, 0], "all": [4, 2]})
    frame.write_parquet(tmp_path / "t.parquet")
    other = MAP.model_copy(update={"index": "t.parquet"})
    records = ingest(reader_for("counts", other), tmp_path, dataset="d").records
    expected = {("1/Female", "woman"): 3, ("1/thief", "woman"): 1, ("2/Female", "man"): 2}
    found = records.select(pl.col("path").str.replace("/[0-9]+$", ""), "gender").rows()
    assert {pair: found.count(pair) for pair in found} == expected


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("-1", "'-1'"),
        ("0.5", "'0.5'"),
        ("", "''"),
        ("nan", "'nan'"),
        ("1,000", None),
        ("12%", "'12%'"),
        ("1e3", "'1e3'"),
    ],
)
def test_what_is_no_count_is_told_by_line_and_column(tmp_path, cell, shown):
    with pytest.raises(DatasetError) as refused:
        read(tmp_path, GOOD.replace("3,1,4", f"3,{cell},4"))
    assert "t.csv" in str(refused.value)
    if shown is None:  # an unquoted thousands separator makes a row of another width
        assert "line 2" in str(refused.value)
    else:
        assert f"line 2, column `thief`: {shown}" in refused.value.found
        assert "1 of 6 counts" in refused.value.what


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (GOOD.replace("f,3,1,4", "f,3,1,5"), "of 1 of 2 rows do not add up", "line 2, column `all`"),
        (GOOD + "f,3,1,4\n", "1 of 3 rows of the table of counts are of a group", "line 4"),
        (GOOD + "x,1\n", "1 of 3 rows of the table of counts cannot be read", "line 4"),
        ("true,Female,thief,all\nf,0,0,0\n", "counts no image", "t.csv"),
        ("true,all\nf,0\n", "no column of counts", "t.csv"),
        (GOOD.replace("thief", "Female"), "stands there twice", "t.csv"),
        (GOOD.replace("true", "sex"), "lacks a mapped column", "t.csv, line 1"),
        (GOOD.replace("f,", "F,").replace("m,", "M,"), "no value of the column `true` is known", "t.csv"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_with_its_place(tmp_path, text, what, where):
    with pytest.raises(DatasetError) as refused:
        read(tmp_path, text)
    assert what in str(refused.value) and where in str(refused.value.where)


def test_an_unknown_group_is_quarantined_image_by_image(tmp_path):
    ingested = read(tmp_path, GOOD + "x,2,3,5\n")
    assert (ingested.listed, ingested.records.height, ingested.quarantine.height) == (11, 6, 5)
    assert set(ingested.quarantine.select("code", "line").rows()) == {("unknown_label", 4)}


def test_images_that_are_elsewhere_are_listed_and_told_apart_by_name(tmp_path):
    column_map = ColumnMap.model_validate(
        {"index": "t.csv", "path": "file", "columns": {"race": "race"}, "min_shown": 1}
    )
    text = "file,race\na/1.jpg,x\n../b.jpg,y\na/1.jpg,x\nc.jpg,x\nc.jpg,y\n,x\nd.jpg,\n"
    ingested = read(tmp_path, text, column_map, "listing")
    assert ingested.records.select("path", "race").rows() == [("a/1.jpg", "x"), ("../b.jpg", "y"), ("d.jpg", None)]
    assert ingested.quarantine.select("line", "code").rows() == [
        (4, "duplicate_row"), (5, "conflicting_duplicate"), (6, "conflicting_duplicate"), (7, "unsafe_path"),
    ]  # fmt: skip
    assert ingested.listed == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"reader": "counts", "map": {"index": "t.csv", "path": "file", "columns": {"race": "race"}}},
        {"reader": "listing", "map": {"index": "t.csv", "columns": {"race": "race"}}},
        {"reader": "listing", "map": {"index": "t.csv", "path": "file", "total": "n", "columns": {"race": "race"}}},
        {"reader": "fairface", "published": "fairface"},
        {"reader": "counts"},
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes):
    with pytest.raises(ValidationError):
        DatasetEntry.model_validate({"root": "folder", **changes})
