"""Any folder of images with a table: the column map is checked, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import ValidationError

from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.grouping import into_bins, without_small_groups
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.preview import preview
from plumbline.datasets.records import Refusal
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError
from plumbline.world import folders
from plumbline.world.layouts import COLUMN_MAP

MAP: dict[str, Any] = {
    "index": "faces.csv",
    "path": "picture",
    "columns": {"gender": "sex", "age": "years", "split": "part"},
    "values": {"gender": {"m": "man", "f": "woman"}},
    "min_shown": 1,
}


def mapped(**changes: Any) -> ColumnMap:
    return ColumnMap.model_validate({**MAP, **changes})


@pytest.fixture
def folder(tmp_path: Path, jpeg: Callable[..., bytes]) -> Path:
    """Return a folder with the pictures 1.jpg to 3.jpg and no table yet."""
    for number in (1, 2, 3):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(number))
    return tmp_path


def test_mapped_values_are_replaced_and_others_kept(folder: Path) -> None:
    (folder / "faces.csv").write_text(
        "note,years,picture,sex,part\nx, 30 ,1.jpg,m,Übung\nx,,2.jpg,f,\nx,6,3.jpg,f,Prüfung\n", "utf-8"
    )
    records = ingest(reader_for("folder", mapped()), folder, dataset="own").records
    assert records.select("path", "split", "gender", "age").rows() == [
        ("1.jpg", "Übung", "man", " 30 "),
        ("2.jpg", None, "woman", None),
        ("3.jpg", "Prüfung", "woman", "6"),
    ]
    filled = {"image_id", "dataset", "path", "split", "gender", "age", "age_group"}
    assert {name for name in records.columns if records[name].null_count() < records.height} == filled


def test_a_preview_counts_groups_and_images_without_one_as_the_audit_will(folder: Path) -> None:
    rows = "".join(f"{n}.jpg,30,{sex}\n" for n, sex in ((1, "f"), (2, "f"), (3, "m"), (4, "m"), (5, "")))
    (folder / "faces.csv").write_text(f"picture,years,sex\n{rows}", "utf-8")
    for number in (4, 5):
        (folder / f"{number}.jpg").write_bytes(b"no picture")
    for least in (1, 2):
        reader = reader_for("folder", mapped(columns={"gender": "sex"}, min_shown=least))
        audited = ingest(reader, folder, dataset="own")
        seen = preview(reader, folder, dataset="own", balance={"gender": (0.45, 0.55)}, most_refused=1.0)
        assert seen.ungrouped.equals(audited.ungrouped)
        assert seen.records["gender"].to_list() == audited.records["gender"].to_list()
        # Where a group needs two images, one man is none, and nor may the women be told: the rest would be he.
        assert seen.ungrouped.height == (least == 2)
        assert seen.failing, "two women and two men are listed, but one man's picture cannot be read"


def test_a_value_without_a_word_has_no_group_and_its_row_stays(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex,years,part\n1.jpg,M,1,a\n2.jpg,,2,a\n3.jpg,f,3,a\n")
    ingested = ingest(reader_for("folder", mapped()), folder, dataset="own")
    assert ingested.records.select("path", "gender").rows() == [("1.jpg", None), ("2.jpg", None), ("3.jpg", "woman")]
    assert ingested.quarantine.is_empty()
    assert ingested.ungrouped.rows() == [("gender", "missing", 1), ("gender", "unmapped", 1)]


def test_a_kept_value_that_cannot_be_shown_is_quarantined(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex,years,part\n1.jpg,m,3\u202e0,a\n2.jpg,m,3,a\u0007\n", "utf-8")
    quarantine = ingest(reader_for("folder", mapped()), folder, dataset="own").quarantine
    assert quarantine["code"].to_list() == ["unknown_label"] * 2
    assert quarantine["stage"].to_list() == ["labels"] * 2
    assert quarantine["line"].to_list() == [2, 3]


def test_splits_are_mapped_too(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex,years,part\n1.jpg,m,3,A\n2.jpg,m,3,C\n")
    values = MAP["values"] | {"split": {"A": "train", "B": "test"}}
    ingested = ingest(reader_for("folder", mapped(values=values)), folder, dataset="own")
    assert ingested.records.select("split", "gender").rows() == [("train", "man")]
    assert ingested.quarantine.select("code", "found").rows() == [("unknown_label", "'C'")]


def test_without_values_groups_are_as_written(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex,desk\n1.jpg,non-binary,2. OG\n2.jpg,Woman,\n3.jpg, ,Keller\n")
    plain = mapped(columns={"gender": "sex", "Abteilung": "desk"}, values={})
    ingested = ingest(reader_for("folder", plain), folder, dataset="own")
    assert ingested.records.select("gender", "Abteilung").rows() == [
        ("non-binary", "2. OG"),
        ("Woman", None),
        (None, "Keller"),
    ]
    assert ingested.ungrouped.rows() == [("gender", "missing", 1), ("Abteilung", "missing", 1)]


@pytest.mark.parametrize("column", ["gender", "race", "age_group", "occupation", "disability"])
def test_a_value_that_values_does_not_map_has_no_group_whatever_its_column(column: str, folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,own\n1.jpg,a\n2.jpg,b\n3.jpg,\n")
    only_a = mapped(columns={column: "own"}, values={column: {"a": "woman"}})
    ingested = ingest(reader_for("folder", only_a), folder, dataset="own")
    assert ingested.records[column].to_list() == ["woman", None, None]
    assert ingested.ungrouped.rows() == [(column, "missing", 1), (column, "unmapped", 1)]


def test_numbers_become_groups(folder: Path, jpeg: Callable[..., bytes]) -> None:
    for number in range(4, 9):
        (folder / f"{number}.jpg").write_bytes(jpeg(number))
    years, pay = ["17", "18", "29.5", "120", "121", "old", "", "65"], [1, 2, 2, 3, 4, 5, 6, 7]
    rows = "".join(f"{i}.jpg,{year},{paid}\n" for i, (year, paid) in enumerate(zip(years, pay), 1))
    (folder / "faces.csv").write_text(f"picture,years,pay\n{rows}")
    by_number = mapped(
        columns={"age": "years", "salary": "pay"},
        values={},
        bins={"age": [0, 18, 30, 65, 120]},
        quantiles={"salary": 2},
    )
    ingested = ingest(reader_for("folder", by_number), folder, dataset="own")
    assert ingested.records["age"].to_list() == [year or None for year in years]
    assert ingested.records["age_group"].to_list() == [
        "0-17", "18-29", "18-29", "65-120", None, None, None, "65-120",
    ]  # fmt: skip
    assert ingested.records["salary"].to_list() == ["1 of 2"] * 4 + ["2 of 2"] * 4
    assert sorted(ingested.ungrouped.rows()) == [
        ("age", "missing", 1),
        ("age_group", "not_a_number", 1),
        ("age_group", "out_of_range", 1),
    ]


def test_numbers_are_read_as_they_are_written() -> None:
    drawn = np.random.default_rng(0).uniform(0, 1, 400)
    odd = ["1e-17", "5E-1", ".25", "0.", "-1", "+1.0", "1e999", "nan", "inf", "1,5", "1_0", "", None]
    groups, without = into_bins(pl.Series("share", [*map(str, drawn), *odd]), (0, 0.5, 1))
    expected = np.where(drawn < 0.5, "0 to 0.5", "0.5 to 1").tolist()
    assert groups.to_list()[:400] == expected
    assert groups.to_list()[400:406] == ["0 to 0.5", "0.5 to 1", "0 to 0.5", "0 to 0.5", None, "0.5 to 1"]
    assert set(groups.to_list()[406:]) == {None} and without == {"not_a_number": 6, "out_of_range": 1}


def test_ages_in_years_are_put_into_bands_without_being_asked(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex,years,part\n1.jpg,m,2,a\n2.jpg,m,35,a\n3.jpg,f,99,a\n")
    records = ingest(reader_for("folder", mapped()), folder, dataset="own").records
    assert records["age_group"].to_list() == ["0-2", "30-39", "70-120"]


@pytest.mark.parametrize("seed", range(40))
def test_no_small_group_of_a_cross_follows_from_what_is_shown(seed: int) -> None:
    rng, least = np.random.default_rng(seed), 5
    n = int(rng.integers(60, 200))
    people = pl.DataFrame(
        {
            "a": rng.choice(["none", "blind", "deaf", "both"], n, p=[0.6, 0.2, 0.15, 0.05]),
            "b": rng.choice(["woman", "man", "other"], n, p=[0.5, 0.42, 0.08]),
        }
    )
    shown, _ = without_small_groups(people, ["a", "b"], {"a × b": ["a", "b"]}, least=least)
    cells = {(a, b): size for a, b, size in people.group_by("a", "b").len().sort("a", "b").iter_rows()}
    totals = [(i, label) for i, name in enumerate("ab") for label in shown[name].drop_nulls().unique()]
    known = [[float(cell[i] == label) for cell in cells] for i, label in totals]
    known += [[float("_".join(cell) == label) for cell in cells] for label in shown["a × b"].drop_nulls().unique()]
    rank = np.linalg.matrix_rank(np.array(known))
    for place, (cell, size) in enumerate(cells.items()):
        # A group whose own label is left out is told apart from no other such group, and from images without a label.
        if size < least and {(0, cell[0]), (1, cell[1])} <= set(totals):
            alone = np.eye(len(cells))[place]
            assert np.linalg.matrix_rank(np.array([*known, alone])) == rank + 1


def test_groups_too_small_are_not_shown_nor_what_would_tell_them(folder: Path, jpeg: Callable[..., bytes]) -> None:
    sizes = {("deaf", "man"): 8, ("deaf", "woman"): 6, ("hearing", "man"): 9, ("hearing", "woman"): 2}
    people = [group for group, size in sizes.items() for _ in range(size)] + [("hearing", "non-binary")] * 7
    for number in range(1, len(people) + 1):
        (folder / f"{number}.jpg").write_bytes(jpeg(number))
    rows = "".join(f"{i}.jpg,{hearing},{sex}\n" for i, (hearing, sex) in enumerate(people, 1))
    (folder / "faces.csv").write_text(f"picture,hearing,sex\n{rows}")
    crossed = mapped(
        columns={"disability": "hearing", "gender": "sex"}, values={}, crosses=[["disability", "gender"]], min_shown=5
    )
    ingested = ingest(reader_for("folder", crossed), folder, dataset="own")
    # Two hearing women are too few. With them goes another hearing group, or hearing less the others would tell them;
    # deaf women, or women less them would; deaf men, or deaf less them would tell the deaf women; and hearing men,
    # or men less them would tell the deaf men.
    assert ingested.records["disability × gender"].null_count() == len(people)
    assert set(ingested.records["gender"]) == {"man", "woman", "non-binary"}
    assert ingested.ungrouped.rows() == [("disability × gender", "small_group", len(people))]
    nobody = ingest(reader_for("folder", crossed.model_copy(update={"min_shown": 9})), folder, dataset="own")
    assert nobody.records["gender"].drop_nulls().unique().to_list() == ["man"]


def test_a_column_without_one_known_word_is_a_mistake_of_the_map(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex\n1.jpg,Male\n2.jpg,Female\n3.jpg,\n")
    with pytest.raises(DatasetError, match="no value of the column `sex` is known") as caught:
        ingest(reader_for("folder", mapped(columns={"gender": "sex"})), folder, dataset="own")
    error = caught.value
    assert (error.where, error.found, error.expected) == ("faces.csv", "'Female'; 'Male'", "m, f")
    assert error.hint == "write the table's own words under `map.values.gender` in the audit file"


def test_of_many_unknown_words_the_first_are_shown(folder: Path) -> None:
    rows = "".join(f"{number}.jpg,{number:02}\n" for number in range(1, 13))
    (folder / "faces.csv").write_text(f"picture,who\n{rows}")
    races = mapped(columns={"race": "who"}, values={}, classes="fairface")
    with pytest.raises(DatasetError, match=r"found:    '01'; '02'; '03'; and 9 more\n  expected: White, Black"):
        ingest(reader_for("folder", races), folder, dataset="own")


def test_a_label_set_is_the_vocabulary_of_its_column(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,who\n1.jpg,East Asian\n2.jpg,Asian\n3.jpg,Latino_Hispanic\n")
    reader = reader_for("folder", mapped(columns={"race": "who"}, values={}, classes="fairface"))
    ingested = ingest(reader, folder, dataset="own")
    assert ingested.records["race"].to_list() == ["East Asian", None, "Latino_Hispanic"]
    assert ingested.ungrouped.rows() == [("race", "unmapped", 1)]
    assert (reader.declaration.base_attribute, reader.declaration.class_set) == ("race", "fairface")


@pytest.mark.parametrize(
    ("columns", "classes", "base"),
    [
        ({"gender": "a", "race": "b"}, None, "race"),
        ({"age": "a", "gender": "b"}, None, "gender"),
        ({"age_group": "a", "age": "b"}, None, "age_group"),
        ({"caption": "a", "set_id": "b", "split": "c"}, None, None),
        ({"department": "a", "split": "c"}, None, "department"),
        ({}, None, None),
        ({"race": "a", "gender": "b"}, "celeba", "gender"),
        ({"race": "a", "occupation": "b"}, "idenprof", "occupation"),
    ],
)
def test_the_base_attribute_follows_from_the_map(
    columns: dict[str, str], classes: str | None, base: str | None
) -> None:
    declaration = reader_for("folder", mapped(columns=columns, values={}, classes=classes)).declaration
    assert (declaration.base_attribute, declaration.class_set) == (base, classes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": {"path": "a"}, "values": {}}, "none of auto_gender.*path"),
        ({"bins": {"age": [18]}}, "two or more numbers"),
        ({"bins": {"age": [18, 18]}}, "each larger than the one before"),
        ({"bins": {"salary": [0, 1]}}, "which salary is not"),
        ({"bins": {"gender": [0, 1]}}, "not two for gender"),
        ({"quantiles": {"age": 1}}, "greater than or equal to 2"),
        ({"crosses": [["gender", "race"]]}, r"mapped \(gender, age, age_group\), which race is not"),
        ({"crosses": [["gender", "gender"]]}, "different attributes"),
        ({"columns": {"gender": " "}, "values": {}}, "a name without control"),
        ({"values": {"race": {"a": "White"}}}, "which race is not"),
        ({"values": {"gender": {"m": ""}}}, "a name without control"),
        ({"index": "faces.xlsx"}, r"a \.csv or \.parquet file"),
        ({"index": "../faces.csv"}, "below the dataset's root"),
        ({"index": "/faces.csv"}, "below the dataset's root"),
        ({"path": ""}, "a name without control"),
        ({"classes": "imagenet"}, "one of celeba, utkface"),
        ({"classes": "fairface"}, "must map `race`"),
        (
            {"classes": "celeba", "values": {"gender": {"m": "male"}}},
            r"values\.gender\.m\n.*one of man, woman, the labels of",
        ),
        ({"values": {"gender": {0: "man", 1: "woman"}}}, "put it in quotes"),
        ({"values": {"gender": {False: "man"}}}, "put it in quotes"),
        ({"values": {"split": {"a": 1}}, "columns": {"split": "part"}}, "put it in quotes"),
        (
            {"columns": {"race": "o"}, "values": {"race": {"w": "white"}}, "classes": "fairface"},
            r"values\.race\.w\n.*the labels of `classes: fairface`; did you mean `White`",
        ),
        ({"columns": {"gender": ["sex"]}}, "valid string"),
        ({"colums": {}}, "Extra inputs"),
    ],
)
def test_a_map_that_cannot_be_right_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        mapped(**changes)


def test_a_mapped_column_that_the_table_lacks_is_an_error(folder: Path) -> None:
    (folder / "faces.csv").write_text("picture,sex,years\n1.jpg,m,3\n")
    with pytest.raises(DatasetError, match=r"faces\.csv, line 1") as caught:
        ingest(reader_for("folder", mapped()), folder, dataset="own")
    assert "part" in str(caught.value.expected)
    pl.DataFrame({"picture": ["1.jpg"], "sex": ["m"], "years": [3]}).write_parquet(folder / "faces.parquet")
    with pytest.raises(DatasetError, match="lacks a mapped column") as caught:
        ingest(reader_for("folder", mapped(index="faces.parquet")), folder, dataset="own")
    assert caught.value.found == "picture: large_string, sex: large_string, years: int64"


def test_a_table_that_is_not_there_or_empty_is_an_error(folder: Path) -> None:
    with pytest.raises(DatasetError, match="no table"):
        ingest(reader_for("folder", mapped()), folder, dataset="own")
    (folder / "faces.csv").write_text("picture,sex,years,part\n")
    with pytest.raises(DatasetError, match="lists no image"):
        ingest(reader_for("folder", mapped()), folder, dataset="own")


def test_a_table_linked_from_outside_is_not_read(folder: Path) -> None:
    root = folder / "root"
    root.mkdir()
    (folder / "faces.csv").write_text("picture,sex,years,part\n1.jpg,m,3,a\n")
    (root / "faces.csv").symlink_to(folder / "faces.csv")
    with pytest.raises(DatasetError, match="leads out"):
        ingest(reader_for("folder", mapped()), root, dataset="own")


def test_bad_lines_and_paths_are_quarantined_one_by_one(folder: Path) -> None:
    (folder / "faces.csv").write_bytes(
        b"\xef\xbb\xbfpicture,sex,years,part\r\n1.jpg,m,3,a\r\n2.jpg,m\r\n3.j\xe4g,m,3,a\r\n../x.jpg,m,3,a\r\n"
        b",m,3,a\r\n1.jpg,m,3,a\r\n1.jpg,m,3,a\r\n"
    )
    ingested = ingest(reader_for("folder", mapped()), folder, dataset="own")
    assert ingested.listed == 7 == ingested.records.height + ingested.quarantine.height
    assert ingested.quarantine.select("line", "code").rows() == [
        (3, "ragged_row"),
        (4, "wrong_encoding"),
        (5, "path_outside_root"),
        (6, "bad_path"),
        (7, "duplicate_row"),
        (8, "duplicate_row"),
    ]


def test_a_parquet_table_is_read_as_text(folder: Path) -> None:
    table = {
        "picture": ["1.jpg", "2.jpg", None],
        "sex": pl.Series(["m", "f", "m"], dtype=pl.Categorical),
        "years": [30, None, 4],
        "part": ["a", "b", "c"],
        "vector": [[1.0], [2.0], [3.0]],
    }
    pl.DataFrame(table).write_parquet(folder / "faces.parquet")
    ingested = ingest(reader_for("folder", mapped(index="faces.parquet")), folder, dataset="own")
    assert ingested.records.select("path", "gender", "age", "split").rows() == [
        ("1.jpg", "man", "30", "a"),
        ("2.jpg", "woman", None, "b"),
    ]
    assert ingested.quarantine.select("code", "line").rows() == [("bad_path", 3)]
    listed = mapped(index="faces.parquet", columns={"age": "vector"}, values={})
    with pytest.raises(DatasetError, match="no plain values"):
        ingest(reader_for("folder", listed), folder, dataset="own")


@pytest.mark.parametrize("index", ["faces.csv", "faces.parquet"])
def test_ages_beside_nulls_are_whole_years_and_others_are_kept(index: str, folder: Path) -> None:
    table = pl.DataFrame({"picture": ["1.jpg", "2.jpg", "3.jpg"], "sex": ["m", "f", "m"], "years": [25.0, None, 25.5]})
    table.write_csv(folder / "faces.csv")
    table.write_parquet(folder / "faces.parquet")
    reader = reader_for("folder", mapped(index=index, columns={"gender": "sex", "age": "years"}))
    records = ingest(reader, folder, dataset="own").records
    assert records["age"].to_list() == ["25", None, "25.5"]


def test_a_declared_number_is_met_by_a_whole_float_and_by_no_other(folder: Path) -> None:
    table = pl.DataFrame({"picture": ["1.jpg", "2.jpg", "3.jpg"], "sex": [1.0, None, 1.5]})
    table.write_parquet(folder / "faces.parquet")
    numbers = mapped(index="faces.parquet", columns={"gender": "sex"}, values={"gender": {"1": "woman"}})
    ingested = ingest(reader_for("folder", numbers), folder, dataset="own")
    assert ingested.records["gender"].to_list() == ["woman", None, None]
    assert ingested.ungrouped.rows() == [("gender", "missing", 1), ("gender", "unmapped", 1)]


def test_a_text_that_is_not_utf_8_spoils_its_row_of_a_parquet_table_alone(folder: Path) -> None:
    table = pl.DataFrame({"picture": [b"1.jpg", b"2.j\xe4g", b"3.jpg"], "sex": ["m", "f", "f"]})
    table.write_parquet(folder / "faces.parquet")
    reader = reader_for("folder", mapped(index="faces.parquet", columns={"gender": "sex"}))
    ingested = ingest(reader, folder, dataset="own")
    assert ingested.records["path"].to_list() == ["1.jpg", "3.jpg"]
    assert ingested.quarantine.select("code", "line").rows() == [("wrong_encoding", 2)]


def test_a_list_in_the_clothes_of_an_extension_is_no_plain_column(folder: Path) -> None:
    tensor = pa.fixed_shape_tensor(pa.int8(), [2])
    vectors = pa.ExtensionArray.from_storage(tensor, pa.array([[1, 2]], pa.list_(pa.int8(), 2)))
    parquet.write_table(pa.table({"picture": ["1.jpg"], "vector": vectors}), folder / "faces.parquet")
    listed = mapped(index="faces.parquet", columns={"age": "vector"}, values={})
    with pytest.raises(DatasetError, match="no plain values"):
        ingest(reader_for("folder", listed), folder, dataset="own")


def test_a_parquet_table_without_rows_lists_no_image(folder: Path) -> None:
    table = {name: pa.array([], pa.string()) for name in ("picture", "sex", "years", "part")}
    parquet.write_table(pa.table(table), folder / "faces.parquet")
    with pytest.raises(DatasetError, match="lists no image"):
        ingest(reader_for("folder", mapped(index="faces.parquet")), folder, dataset="own")


def test_a_parquet_table_that_does_not_read_is_an_error(folder: Path) -> None:
    (folder / "faces.parquet").write_bytes(b"not a table")
    with pytest.raises(DatasetError, match="cannot be read"):
        ingest(reader_for("folder", mapped(index="faces.parquet")), folder, dataset="own")


def test_paths_may_name_rows_of_a_parquet_file(folder: Path, jpeg: Callable[..., bytes]) -> None:
    pictures = pl.DataFrame({"image": [jpeg(7), jpeg(8)]})
    pictures.write_parquet(folder / "pictures.parquet")
    (folder / "faces.csv").write_text("picture,sex,years,part\npictures.parquet/1,m,3,a\npictures.parquet/2,m,3,a\n")
    ingested = ingest(reader_for("folder", mapped()), folder, dataset="own")
    assert ingested.records["path"].to_list() == ["pictures.parquet/1"]
    assert ingested.quarantine["code"].to_list() == ["missing_file"]


def test_the_planted_folder_in_german_is_read_by_its_map(tmp_path: Path) -> None:
    root = folders.ensure("folder", tmp_path)
    reader = reader_for("folder", ColumnMap.model_validate(COLUMN_MAP))
    ingested = ingest(reader, root, dataset="own")
    assert (ingested.listed, ingested.records.height) == (308, 300)
    assert set(ingested.records["gender"]) == {"man", "woman"}
    assert set(ingested.records["split"]) == {"train", "test"}
    assert ingested.records["race"].n_unique() == 7
    assert not any(isinstance(item, Refusal) for item in reader.entries(root))
