"""The FairFace reader: published label files, in either of their forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Entry
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

HEADER = "file,age,gender,race,service_test"

# First rows of fairface_label_val.csv (Karkkainen and Joo, CC BY 4.0), a copy with a folder before paths.
EXCERPT = """\
file,age,gender,race,service_test
fairface/val/1.jpg,3-9,Male,East Asian,False
fairface/val/2.jpg,50-59,Female,East Asian,True
fairface/val/3.jpg,30-39,Male,White,True
fairface/val/4.jpg,20-29,Female,Latino_Hispanic,True
fairface/val/5.jpg,20-29,Male,Southeast Asian,False
fairface/val/6.jpg,30-39,Male,Latino_Hispanic,False
fairface/val/7.jpg,20-29,Male,Black,True
fairface/val/8.jpg,3-9,Male,East Asian,False
fairface/val/9.jpg,20-29,Male,Southeast Asian,False
fairface/val/10.jpg,3-9,Male,Southeast Asian,False
"""


def published(tmp_path: Path, jpeg: Callable[..., bytes], *, prefix: str) -> Path:
    (tmp_path / "val").mkdir()
    (tmp_path / "fairface_label_val.csv").write_text(EXCERPT.replace("fairface/val/", f"{prefix}val/"), "utf-8")
    for number in range(1, 11):
        (tmp_path / f"val/{number}.jpg").write_bytes(jpeg(number))
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "fairface/", "./", "data/fairface/"])
def test_published_rows_become_records(prefix: str, tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    ingested = ingest(reader_for("fairface"), published(tmp_path, jpeg, prefix=prefix), dataset="fairface-025")
    records = ingested.records
    assert ingested.listed == records.height == 10
    assert records["path"].to_list() == [f"val/{number}.jpg" for number in range(1, 11)]
    assert records["gender"].to_list() == ["man", "woman", "man", "woman", *["man"] * 6]
    assert records["race"].to_list()[3:5] == ["Latino_Hispanic", "Southeast Asian"]
    assert records["age"].to_list()[:3] == ["3-9", "50-59", "30-39"]
    assert set(records["split"]) == {"val"} and set(records["dataset"]) == {"fairface-025"}
    for absent in ("age_group", "occupation", "scene", "physical", "set_id", "caption"):
        assert records[absent].is_null().all()


def test_both_splits_are_read_train_first(fairface: Callable[..., Path], jpeg: Callable[..., bytes]) -> None:
    fairface(["val/1.jpg,3-9,Male,White,False"], {"val/1.jpg": jpeg(1)})
    root = fairface(["train/1.jpg,more than 70,Female,Indian,True"], {"train/1.jpg": jpeg(2)}, split="train")
    records = ingest(reader_for("fairface"), root, dataset="faces").records
    assert records["path"].to_list() == ["train/1.jpg", "val/1.jpg"]
    assert records["split"].to_list() == ["train", "val"]
    assert records["age"].to_list() == ["more than 70", "3-9"]


def test_columns_are_found_by_name(fairface: Callable[..., Path]) -> None:
    root = fairface([], {})
    (root / "fairface_label_val.csv").write_text("race,file,note,gender,age\nBlack,val/1.jpg,hello,Female,0-2\n")
    entries = reader_for("fairface").entries(root)
    raw = {"race": "Black", "gender": "Female", "age": "0-2"}
    assert entries == [Entry("val/1.jpg", "val", raw, "fairface_label_val.csv", 2)]


def test_no_label_file_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"fairface_label_train\.csv or fairface_label_val\.csv") as caught:
        ingest(reader_for("fairface"), tmp_path, dataset="faces")
    assert caught.value.hint


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"val/1.jpg,3-9,Male,White,False\n",
        b"file,age,gender\nval/1.jpg,3-9,Male\n",
        b"file,age,gender,race,race\n",
        HEADER.encode("utf-16"),
        b"file,age,gender,r\xe4ce\n",
    ],
)
def test_an_index_without_its_header_is_an_error_of_the_whole(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "fairface_label_val.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=r"fairface_label_val\.csv, line 1") as caught:
        ingest(reader_for("fairface"), tmp_path, dataset="faces")
    assert "file, gender, race, age" in str(caught.value.expected)


def test_an_index_that_lists_nothing_is_an_error(fairface: Callable[..., Path]) -> None:
    with pytest.raises(DatasetError, match="list no image"):
        ingest(reader_for("fairface"), fairface([], {}), dataset="faces")


def test_an_index_linked_from_outside_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text(EXCERPT)
    root = tmp_path / "root"
    root.mkdir()
    (root / "fairface_label_val.csv").symlink_to(secret)
    with pytest.raises(DatasetError, match="leads out"):
        ingest(reader_for("fairface"), root, dataset="faces")


def test_an_index_that_cannot_be_opened_is_an_error(
    fairface: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fairface(["val/1.jpg,3-9,Male,White,False"], {})

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DatasetError, match="Permission denied"):
        ingest(reader_for("fairface"), root, dataset="faces")


def test_the_real_val_labels_are_those_that_the_dataset_is_known_by(
    tmp_path: Path, real_file: Callable[[str], Path]
) -> None:
    name = "fairface_label_val.csv"
    (tmp_path / name).write_bytes(real_file(f"fairface/{name}").read_bytes())
    reader = reader_for("fairface")
    entries = [item for item in reader.entries(tmp_path) if isinstance(item, Entry)]
    assert [entry.path for entry in entries] == [f"val/{number}.jpg" for number in range(1, 10_955)]
    assert [entry.line for entry in entries] == list(range(2, 10_956))
    labels = [reader.labels(entry.raw) for entry in entries]
    cells = Counter((label["race"], label["gender"]) for label in labels)
    assert len(cells) == 7 * 2
    assert (min(cells.values()), max(cells.values())) == (396, 1122)
    assert cells["Middle Eastern", "woman"] == 396
    assert cells["White", "man"] == 1122
    assert len({label["age"] for label in labels}) == 9
    # Without the images, each row is listed and refused for the same reason.
    ingested = ingest(reader, tmp_path, dataset="fairface")
    assert ingested.listed == ingested.quarantine.height == 10_954
    assert set(ingested.quarantine["code"]) == {"missing_file"}
