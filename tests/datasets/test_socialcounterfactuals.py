"""The SocialCounterfactuals reader: attributes from captions, sets from rows, in either layout."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Entry, Refusal
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError
from plumbline.world import folders

READER = reader_for("socialcounterfactuals")

# Rows of the authors' metadata (MIT), cut to three captions: seed, filename, rank, captions by number.
REAL = {
    "physical_gender": [
        ("553729286", "a_picture_of_physical_gender_civil_engineer", "2",
         {"10": "A picture of a skinny male Civil Engineer", "21": "A picture of an obese female Civil Engineer",
          "26": "A picture of an old male Civil Engineer"}),
        ("3918439167", "physical_gender_carpenter", "0",
         {"10": "a skinny male Carpenter", "21": "an obese female Carpenter", "26": "an old male Carpenter"}),
        ("2996548237", "physical_gender_carpenter", "4",
         {"10": "a skinny male Carpenter", "21": "an obese female Carpenter", "26": "an old male Carpenter"}),
    ],
    "physical_race": [
        ("594932675", "a_photo_of_physical_race_barber", "1",
         {"34": "A photo of a skinny Middle Eastern barber", "62": "A photo of an obese Indian barber",
          "77": "A photo of a tattooed Latino barber"}),
        ("4159372176", "a_photo_of_physical_race_barber", "2",
         {"34": "A photo of a skinny Middle Eastern barber", "62": "A photo of an obese Indian barber",
          "77": "A photo of a tattooed Latino barber"}),
    ],
    "race_gender": [
        ("3761796350", "a_picture_of_race_gender_plumber", "0",
         {"0": "A picture of a White male plumber", "7": "A picture of an Asian female plumber",
          "9": "A picture of a Middle Eastern female plumber"}),
        ("1727113468", "a_picture_of_race_gender_plumber", "1",
         {"0": "A picture of a White male plumber", "7": "A picture of an Asian female plumber",
          "9": "A picture of a Middle Eastern female plumber"}),
        ("2928704105", "an_image_of_race_gender_special_ed_teacher", "7",
         {"0": "An image of a White male special ed teacher", "7": "An image of an Asian female special ed teacher",
          "9": "An image of a Middle Eastern female special ed teacher"}),
    ],
}  # fmt: skip
COMPLETE = {"race_gender": 12, "physical_gender": 10, "physical_race": 30}
REAL_SETS = {"physical_gender": 5052, "physical_race": 836, "race_gender": 7936}


def write_metadata(root: Path, subset: str, rows: list[tuple[Any, ...]]) -> None:
    root.mkdir(exist_ok=True)
    numbers = list(rows[0][3])
    header = ["seed", "p2p_threshold", "cfg_scale", "filename", "rank", *(f"caption_{n}" for n in numbers)]
    with (root / f"metadata_{subset}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([seed, "0.5", "9.1", name, rank, *captions.values()] for seed, name, rank, captions in rows)


def one_row(root: Path, caption: str, *, subset: str = "race_gender", filename: str | None = None) -> Any:
    write_metadata(root, subset, [("1", filename or f"{subset}_chef", "0", {"0": caption})])
    (item,) = READER.entries(root)
    return item


def test_real_rows_become_entries_with_the_words_of_their_captions(tmp_path: Path) -> None:
    for subset, rows in REAL.items():
        write_metadata(tmp_path, subset, rows)
    entries = READER.entries(tmp_path)
    assert all(isinstance(entry, Entry) for entry in entries)
    found = {entry.path: (entry.split, READER.labels(entry.raw)) for entry in entries}  # type: ignore[arg-type,union-attr]
    assert len(found) == 8 * 3
    assert [entry.split for entry in entries] == ["race_gender"] * 9 + ["physical_gender"] * 9 + ["physical_race"] * 6  # type: ignore[union-attr]
    assert found["a_picture_of_physical_gender_civil_engineer_2_21_553729286.jpg"] == (
        "physical_gender",
        {
            "physical": "obese",
            "gender": "woman",
            "occupation": "civil engineer",
            "set_id": "a_picture_of_physical_gender_civil_engineer_2_553729286",
            "caption": "A picture of an obese female Civil Engineer",
        },
    )
    middle_eastern = found["a_photo_of_physical_race_barber_1_34_594932675.jpg"][1]
    assert (middle_eastern["race"], middle_eastern["physical"]) == ("Middle Eastern", "skinny")
    teacher = found["an_image_of_race_gender_special_ed_teacher_7_7_2928704105.jpg"][1]
    assert (teacher["race"], teacher["gender"], teacher["occupation"]) == ("Asian", "woman", "special ed teacher")


@pytest.mark.parametrize("subset", COMPLETE)
def test_every_row_of_the_real_metadata_parses(subset: str, tmp_path: Path, real_file: Callable[[str], Path]) -> None:
    source = real_file(f"lvlm/metadata_{subset}.csv")
    (tmp_path / source.name).symlink_to(source)
    with pytest.raises(DatasetError, match="leads out"):
        READER.entries(tmp_path)
    (tmp_path / source.name).unlink()
    (tmp_path / source.name).write_bytes(source.read_bytes())
    entries = [item for item in READER.entries(tmp_path) if isinstance(item, Entry)]
    assert len(entries) == len(READER.entries(tmp_path)) == REAL_SETS[subset] * COMPLETE[subset]
    labels = [READER.labels(entry.raw) for entry in entries]
    assert set(Counter(label["set_id"] for label in labels).values()) == {COMPLETE[subset]}
    columns = subset.split("_")
    pairs = Counter(tuple(label[column] for column in columns) for label in labels)
    assert pairs == dict.fromkeys(pairs, REAL_SETS[subset]) and len(pairs) == COMPLETE[subset]
    # The two sources of the occupation agree in the real files, so that either layout gives the same.
    assert all(label["caption"].lower().endswith(f" {label['occupation']}") for label in labels)


@pytest.mark.parametrize(
    "caption",
    [
        "", "a White chef", "a male chef", "a White male", "a White male ", "a Martian male chef", "a male White chef",
        "a White White chef", "a White old chef", "White male chef", "A drawing of a White male chef",
        "a Whitemale chef", "a skinny male chef",
    ],
)  # fmt: skip
def test_a_caption_without_the_subsets_two_words_is_an_unknown_label(caption: str, tmp_path: Path) -> None:
    item = one_row(tmp_path, caption)
    assert isinstance(item, Refusal)
    assert (item.code, item.stage, item.line) == ("unknown_label", "labels", 2)
    assert item.path == "race_gender_chef_0_0_1.jpg"
    assert item.found == repr(caption)


@pytest.mark.parametrize(
    "filename", ["chef", "race_gender_", "physical_race_chef", "a_sketch_of_race_gender_chef", "race_gender"]
)
def test_an_occupation_is_never_guessed(filename: str, tmp_path: Path) -> None:
    item = one_row(tmp_path, "a White male chef", filename=filename)
    assert isinstance(item, Refusal)
    assert (item.code, item.found) == ("unknown_label", repr(filename))


def test_images_lie_in_their_folder_where_there_is_one(tmp_path: Path) -> None:
    assert one_row(tmp_path, "a White male chef").path == "race_gender_chef_0_0_1.jpg"
    (tmp_path / "images").mkdir()
    assert one_row(tmp_path, "a White male chef").path == "images/race_gender_chef_0_0_1.jpg"


def test_a_filename_that_leads_out_is_refused(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    root = tmp_path / "root"
    name = "race_gender_../../../race_gender_chef"
    one_row(root, "a White male chef", filename=name)
    (tmp_path / "race_gender_chef_0_0_1.jpg").write_bytes(jpeg())
    quarantine = ingest(READER, root, dataset="sets").quarantine
    assert quarantine.select("code", "line").rows() == [("path_outside_root", 2)]


def test_an_absent_image_leaves_an_incomplete_set_that_can_be_counted(
    tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    write_metadata(tmp_path, "race_gender", REAL["race_gender"][:2])
    for number, entry in enumerate(READER.entries(tmp_path)[:-1]):
        (tmp_path / entry.path).write_bytes(jpeg(number))
    ingested = ingest(READER, tmp_path, dataset="sets")
    assert ingested.listed == 6
    assert ingested.quarantine.select("code", "path").rows() == [
        ("missing_file", "a_picture_of_race_gender_plumber_1_9_1727113468.jpg")
    ]
    counts = dict(ingested.records["set_id"].value_counts().iter_rows())
    assert counts == {
        "a_picture_of_race_gender_plumber_0_3761796350": 3,
        "a_picture_of_race_gender_plumber_1_1727113468": 2,
    }


def test_a_bad_line_spoils_no_other_and_a_mark_and_crlf_are_accepted(tmp_path: Path) -> None:
    content = (
        b"\xef\xbb\xbfseed,filename,rank,caption_0\r\n1,race_gender_chef,0,a White male chef\r\n"
        b"2,race_gender_chef\r\n3,race_gender_ch\xe4f,0,a White male chef\r\n"
    )
    (tmp_path / "metadata_race_gender.csv").write_bytes(content)
    entry, *refused = READER.entries(tmp_path)
    assert isinstance(entry, Entry) and entry.line == 2
    assert [(item.code, item.line) for item in refused if isinstance(item, Refusal)] == [
        ("ragged_row", 3),
        ("wrong_encoding", 4),
    ]


def test_metadata_without_captions_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "metadata_race_gender.csv").write_text("seed,filename,rank,text\n1,race_gender_chef,0,x\n")
    with pytest.raises(DatasetError, match="other columns") as caught:
        READER.entries(tmp_path)
    assert caught.value.found == "seed, filename, rank, text"


def test_a_folder_without_any_index_names_both_layouts(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"data/\*\.parquet or metadata_race_gender\.csv"):
        ingest(READER, tmp_path, dataset="sets")


def test_an_index_that_lists_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "metadata_race_gender.csv").write_text("seed,filename,rank,caption_0\n")
    with pytest.raises(DatasetError, match="lists no image"):
        READER.entries(tmp_path)


ROW = {
    "image": {"bytes": b"", "path": None},
    "caption": "A photo of an old Latino Pastry Chef",
    "counterfactual_set": "a_photo_of_physical_race_pastry_chef_3_99",
    "a1": "old",
    "a1_type": "physical",
    "a2": "Latino",
    "a2_type": "race",
    "a1a2": "old Latino",
}


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def test_published_rows_give_the_same_labels_as_extracted_ones(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    image = {"bytes": jpeg(), "path": None}
    write_rows(tmp_path / "data/train-00000-of-00001.parquet", {**ROW, "image": image})
    records = ingest(READER, tmp_path, dataset="sets").records
    columns = ("path", "split", "race", "gender", "physical", "occupation", "set_id", "caption")
    assert records.select(columns).rows() == [
        (
            "data/train-00000-of-00001.parquet/0", "physical_race", "Latino", None, "old", "pastry chef",
            "a_photo_of_physical_race_pastry_chef_3_99", ROW["caption"],
        )
    ]  # fmt: skip


def test_parquet_files_are_read_in_order_from_the_root_too(tmp_path: Path) -> None:
    for name in ("data/train-00001.parquet", "data/train-00000.parquet", "a.parquet"):
        write_rows(tmp_path / name, ROW, ROW)
    assert READER.index_files(tmp_path) == ["a.parquet", "data/train-00000.parquet", "data/train-00001.parquet"]
    assert [item.path for item in READER.entries(tmp_path)][1:3] == ["a.parquet/1", "data/train-00000.parquet/0"]


def test_metadata_counts_even_beside_parquet_files(tmp_path: Path) -> None:
    write_rows(tmp_path / "data/train.parquet", ROW)
    write_metadata(tmp_path, "race_gender", REAL["race_gender"])
    assert READER.index_files(tmp_path) == ["metadata_race_gender.csv"]


@pytest.mark.parametrize(
    "change",
    [
        {"caption": None}, {"caption": "a Martian chef"}, {"a1a2": "young Latino"}, {"a1a2": None}, {"a1a2": "old"},
        {"counterfactual_set": None}, {"counterfactual_set": ""},
    ],
)  # fmt: skip
def test_a_row_that_contradicts_itself_is_an_unknown_label(change: dict[str, Any], tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", ROW, {**ROW, **change})
    good, bad = READER.entries(tmp_path)
    assert isinstance(good, Entry) and isinstance(bad, Refusal)
    assert (bad.code, bad.path, bad.line) == ("unknown_label", "a.parquet/1", 2)


@pytest.mark.parametrize("column", ["caption", "counterfactual_set", "a1a2"])
@pytest.mark.parametrize(("value", "code"), [(b"caf\xe9", "wrong_encoding"), (b"x" * (1 << 20), "value_too_long")])
def test_a_text_that_cannot_be_used_spoils_its_row_alone(
    column: str, value: bytes, code: str, tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    table = pa.Table.from_pylist([{**ROW, "image": {"bytes": jpeg(i), "path": None}} for i in range(3)])
    texts = pa.array([ROW[column].encode(), value, ROW[column].encode()], pa.binary())
    place = table.schema.get_field_index(column)
    table = table.set_column(place, column, texts.cast(pa.string(), safe=False))
    parquet.write_table(table, tmp_path / "a.parquet")
    ingested = ingest(READER, tmp_path, dataset="sets")
    assert ingested.records["path"].to_list() == ["a.parquet/0", "a.parquet/2"]
    assert ingested.quarantine.select("path", "line", "stage", "code").rows() == [("a.parquet/1", 2, "index", code)]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_captions_are_read_in_every_form_that_arrow_has_for_texts(kind: pa.DataType, tmp_path: Path) -> None:
    texts = {name: pa.array([ROW[name]]).cast(kind) for name in ("caption", "counterfactual_set", "a1a2")}
    parquet.write_table(pa.table({**texts, "image": [ROW["image"]]}), tmp_path / "a.parquet")
    (entry,) = READER.entries(tmp_path)
    assert isinstance(entry, Entry) and entry.raw["caption"] == ROW["caption"]


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([ROW])
    parquet.write_table(table.append_column("image", table["caption"]), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="other columns"):
        READER.entries(tmp_path)


@pytest.mark.parametrize("absent", ["image", "caption", "counterfactual_set", "a1a2"])
def test_other_columns_than_the_published_ones_are_named(absent: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", {name: value for name, value in ROW.items() if name != absent})
    with pytest.raises(DatasetError, match="other columns") as caught:
        READER.entries(tmp_path)
    assert "a1_type: string" in str(caught.value.found)


def test_a_parquet_file_that_does_not_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"not a table")
    with pytest.raises(DatasetError, match="cannot be read"):
        READER.entries(tmp_path)


def test_a_parquet_file_linked_from_outside_is_not_read(tmp_path: Path) -> None:
    outside = write_rows(tmp_path / "outside.parquet", ROW)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a.parquet").symlink_to(outside)
    with pytest.raises(DatasetError, match="leads out"):
        READER.entries(tmp_path / "root")


@pytest.mark.parametrize("kind", ["socialcounterfactuals", "socialcounterfactuals_parquet"])
def test_planted_sets_are_complete_but_for_the_bad_one(kind: str, tmp_path: Path) -> None:
    records = ingest(READER, folders.ensure(kind, tmp_path), dataset="sets").records
    sizes = records.group_by("split", "set_id").len().select("split", "len").iter_rows()
    complete = Counter(split for split, size in sizes if size == COMPLETE[split])
    extracted = {"race_gender": 20, "physical_gender": 15, "physical_race": 6}
    assert complete == (extracted if kind == "socialcounterfactuals" else {"race_gender": 20})


def test_both_planted_layouts_show_the_same_people(tmp_path: Path) -> None:
    extracted, published = (
        ingest(READER, folders.ensure(kind, tmp_path), dataset="sets").records
        for kind in ("socialcounterfactuals", "socialcounterfactuals_parquet")
    )
    columns = ("image_id", "split", "race", "gender", "occupation", "set_id", "caption")
    assert published.select(columns).equals(extracted.select(columns)[: published.height])
