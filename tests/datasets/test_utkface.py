"""The UTKFace reader: labels from file names, and no guess where a field is missing."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Entry, Refusal
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

GENDERS = ["man", "woman"]
RACES = ["White", "Black", "Asian", "Indian", "Others"]

REAL_MALFORMED = [
    "39_1_20170116174525125.jpg.chip.jpg",
    "61_1_20170109150557335.jpg.chip.jpg",
    "53__0_20170116184028385.jpg.chip.jpg",
    "24_0_1_20170116220224657 .jpg.chip.jpg",
    "55_0_0_20170116232725357jpg.chip.jpg",
]


def listed(*names: str) -> list[Entry | Refusal]:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            with open(os.path.join(os.fsencode(folder), os.fsencode(name)), "wb"):  # noqa: PTH118, PTH123
                pass
        return list(reader_for("utkface").entries(Path(folder)))


def group_of(age: int) -> str:
    """The table of the study, as it stands there: 0-12, 13-19, 20-35, 36-60, 61+."""
    if age <= 12:
        return "child"
    if age <= 19:
        return "teenager"
    if age <= 35:
        return "young_adult"
    return "middle_aged" if age <= 60 else "elderly"


@given(
    age=st.integers(0, 116),
    gender=st.integers(0, 1),
    race=st.integers(0, 4),
    stamp=st.from_regex(r"[0-9]{17}", fullmatch=True),
    end=st.sampled_from([".jpg", ".jpg.chip.jpg", ".JPG"]),
)
def test_every_well_formed_name_gives_its_labels(age: int, gender: int, race: int, stamp: str, end: str) -> None:
    (entry,) = listed(f"{age}_{gender}_{race}_{stamp}{end}")
    assert isinstance(entry, Entry)
    assert reader_for("utkface").labels(entry.raw) == {
        "gender": GENDERS[gender],
        "race": RACES[race],
        "age": str(age),
        "age_group": group_of(age),
    }


@given(st.text(st.characters(blacklist_characters="/\0", codec="utf-8"), min_size=1, max_size=40))
def test_any_other_name_is_a_refusal_and_is_still_listed(name: str) -> None:
    if name in {".", ".."}:
        return
    (item,) = listed(name)
    is_name = re.fullmatch(r"(?i)[0-9]+_[0-9]+_[0-9]+_[0-9]+\.jpg(\.chip\.jpg)?", name)
    assert isinstance(item, Refusal) or is_name
    if isinstance(item, Refusal):
        assert (item.code, item.stage) == ("malformed_name", "index")


@given(st.lists(st.from_regex(r"[0-9]{1,3}", fullmatch=True), min_size=1, max_size=6).filter(lambda f: len(f) != 4))
def test_a_name_with_a_missing_or_further_field_is_never_guessed(fields: list[str]) -> None:
    (item,) = listed("_".join(fields) + ".jpg")
    assert isinstance(item, Refusal)


def test_malformed_names_of_the_public_set_are_quarantined(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    for seed, name in enumerate([*REAL_MALFORMED, "26_0_2_20170104023102422.jpg.chip.jpg"]):
        (tmp_path / name).write_bytes(jpeg(seed))
    ingested = ingest(reader_for("utkface"), tmp_path, dataset="utk")
    assert ingested.records.select("race", "gender", "age", "age_group", "split").rows() == [
        ("Asian", "man", "26", "young_adult", None)
    ]
    assert ingested.quarantine["path"].to_list() == sorted(REAL_MALFORMED)
    assert set(ingested.quarantine["code"]) == {"malformed_name"}
    assert ingested.quarantine["line"].is_null().all()
    assert all("[age]_[gender]" in expected for expected in ingested.quarantine["expected"])


@pytest.mark.parametrize("name", ["117_0_0_1.jpg", "999_0_0_1.jpg", "20_2_0_1.jpg", "20_0_5_1.jpg", "20_00_0_1.jpg"])
def test_a_label_out_of_range_is_unknown(name: str, tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    (tmp_path / name).write_bytes(jpeg())
    quarantine = ingest(reader_for("utkface"), tmp_path, dataset="utk").quarantine
    assert quarantine["code"].to_list() == ["unknown_label"]
    assert quarantine["stage"].to_list() == ["labels"]


def test_folders_below_are_read_in_order_and_every_file_is_listed(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    (root / "zoë").mkdir(parents=True)
    outside.mkdir()
    (root / "zoë/2_0_1_1.jpg").write_bytes(jpeg(1))
    (root / "1_0_1_1.jpg").write_bytes(jpeg(2))
    (root / "landmarks.txt").write_text("1 2 3")
    (outside / "3_0_1_1.jpg").write_bytes(jpeg(3))
    (root / "4_0_1_1.jpg").symlink_to(outside, target_is_directory=True)
    ingested = ingest(reader_for("utkface"), root, dataset="utk")
    assert ingested.listed == 4
    assert ingested.records["path"].to_list() == ["1_0_1_1.jpg", "zoë/2_0_1_1.jpg"]
    refused = dict(zip(ingested.quarantine["path"], ingested.quarantine["code"]))
    assert refused == {"4_0_1_1.jpg": "path_outside_root", "landmarks.txt": "malformed_name"}


def test_a_name_that_is_not_utf_8_is_quarantined_readably(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")  # noqa: PTH118
    os.mkdir(folder)  # noqa: PTH102
    with open(os.path.join(folder, b"1_0_1_1.jpg"), "wb") as file:  # noqa: PTH118, PTH123
        file.write(jpeg())
    quarantine = ingest(reader_for("utkface"), tmp_path, dataset="utk").quarantine
    assert quarantine["code"].to_list() == ["bad_path"]
    assert quarantine["path"].to_list() == ["caf\\udce9/1_0_1_1.jpg"]


def test_an_empty_folder_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"\[age\]_\[gender\]_\[race\]"):
        ingest(reader_for("utkface"), tmp_path, dataset="utk")


def test_a_folder_that_cannot_be_listed_stops_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DatasetError, match="cannot be listed"):
        reader_for("utkface").entries(tmp_path)
