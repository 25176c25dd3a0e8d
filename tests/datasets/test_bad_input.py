"""The table "Bad input, and what it gets": each row, through a whole ingestion, beside two sound images."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from plumbline.datasets import Ingested, ingest, reader_for
from plumbline.images import decode

HEADER = b"file,age,gender,race,service_test"
SOUND = (b"val/1.jpg,3-9,Male,East Asian,False", b"val/3.jpg,30-39,Female,White,True")
LABELS = b"20-29,Male,Black,False"


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8))


def rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(noise(2), "JPEG", exif=exif)


def sixteen_bit() -> bytes:
    return encoded(Image.fromarray(np.full((12, 16), 0x8000, dtype=np.uint16)), "PNG")


def bomb() -> bytes:
    data = encoded(noise(2), "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + b"\xff\xff\xff\xff" + data[frame + 9 :]


@dataclass(frozen=True)
class Bad:
    """One row of the table: what is written, which line lists it, and what the quarantine must say of it."""

    code: str
    stage: str = "image"
    name: str = "val/2.jpg"
    data: bytes | None = None
    line: bytes | None = None
    found: str = ""
    expected: str = ""
    path: str | None = None


TABLE = {
    "zero-byte": Bad("empty_file", data=b"", found="0 bytes"),
    "truncated": Bad("truncated", data=encoded(noise(2), "JPEG")[:-40], expected="whole file"),
    "corrupt": Bad("corrupt", data=b"\xff\xd8\xff" + b"\0" * 100, expected="sound file"),
    "wrong extension": Bad(
        "wrong_extension", data=encoded(noise(2), "PNG"), found=".jpg on a PNG", expected=".png"
    ),
    "non-image bytes": Bad(
        "not_an_image", data=b"<html></html>", found="3c 68 74 6d", expected="JPEG, PNG or WEBP"
    ),
    "decompression bomb": Bad("decompression_bomb", data=bomb(), found="65535 × 65535"),
    "animated": Bad(
        "animated",
        name="val/2.webp",
        data=encoded(noise(2), "WEBP", save_all=True, append_images=[noise(3)]),
        found="2 frames",
    ),
    "GIF": Bad("unsupported_format", name="val/2.gif", data=encoded(noise(2), "GIF"), found="GIF"),
    "1-pixel": Bad(
        "too_small", data=encoded(Image.new("RGB", (1, 1)), "JPEG"), found="1 × 1", expected="2 × 2"
    ),
    "missing file": Bad("missing_file"),
    "name too long": Bad(
        "unreadable",
        line=b"val/" + b"x" * 280 + b".jpg," + LABELS,
        found="name too long",
        path="val/" + "x" * 280 + ".jpg",
    ),
    "..": Bad("path_outside_root", "path", line=b"../../val/2.jpg," + LABELS, path="../../val/2.jpg"),
    ".. within": Bad(
        "path_outside_root", "path", line=b"val/../val/2.jpg," + LABELS, path="val/../val/2.jpg"
    ),
    "absolute": Bad("path_outside_root", "path", line=b"/etc/val/2.jpg," + LABELS, path="/etc/val/2.jpg"),
    "absolute, Windows": Bad(
        "path_outside_root", "path", line=b"C:/val/2.jpg," + LABELS, path="C:/val/2.jpg"
    ),
    "control character": Bad(
        "bad_path", "path", line=b"val/\x1b[31m2.jpg," + LABELS, path="val/\\u001b[31m2.jpg"
    ),
    "direction change": Bad(
        "bad_path", "path", line="val/\u202egpj.jpg,".encode() + LABELS, path="val/\\u202egpj.jpg"
    ),
    "folder": Bad(
        "wrong_split", "index", line=b"train/2.jpg," + LABELS, expected="val/N.jpg", path="train/2.jpg"
    ),
    "no folder": Bad("wrong_split", "index", line=b"2.jpg," + LABELS, path="2.jpg"),
    "empty path": Bad("wrong_split", "index", line=b"," + LABELS, path=""),
    "duplicate row": Bad("duplicate_row", "duplicates", line=SOUND[0], found="val/1.jpg", path="val/1.jpg"),
    "duplicate bytes": Bad(
        "duplicate",
        "duplicates",
        data=encoded(noise(1), "JPEG"),
        line=b"val/2.jpg,3-9,Male,East Asian,True",
        expected="kept: val/1.jpg",
    ),
    "unknown race": Bad(
        "unknown_label",
        "labels",
        line=b"val/2.jpg,20-29,Male,Martian,False",
        found="Martian",
        expected="White, Black",
    ),
    "unknown gender": Bad(
        "unknown_label", "labels", line=b"val/2.jpg,20-29,male,Black,False", expected="Male, Female"
    ),
    "unknown age": Bad("unknown_label", "labels", line=b"val/2.jpg,25,Male,Black,False", expected="20-29"),
    "padded label": Bad(
        "unknown_label", "labels", line=b"val/2.jpg,20-29, Male,Black,False", found="' Male'"
    ),
    "short row": Bad(
        "ragged_row", "index", line=b"val/2.jpg,20-29,Male", found="3 fields", expected="5 fields"
    ),
    "long row": Bad("ragged_row", "index", line=b"val/2.jpg," + LABELS + b",x", found="6 fields"),
    "open quote": Bad("ragged_row", "index", line=b'val/2.jpg,20-29,Male,"Black,False', expected="file,age"),
    "wrong encoding": Bad(
        "wrong_encoding", "index", line=b"val/\xe9.jpg," + LABELS, found="\\xe9", expected="UTF-8"
    ),
}


def write_folder(root: Path, line: bytes, *, header: bytes = HEADER, ending: bytes = b"\n") -> None:
    (root / "val").mkdir(parents=True)
    (root / "val/1.jpg").write_bytes(encoded(noise(1), "JPEG"))
    (root / "val/3.jpg").write_bytes(encoded(noise(3), "JPEG"))
    (root / "fairface_label_val.csv").write_bytes(ending.join([header, SOUND[0], line, SOUND[1], b""]))


def ingest_fairface(root: Path) -> Ingested:
    return ingest(reader_for("fairface"), root, dataset="faces", workers=2)


def only_refusal(ingested: Ingested) -> dict[str, object]:
    """Return the one quarantine row, after checking that everything else was accepted."""
    assert ingested.listed == 3
    assert ingested.records["path"].to_list() == ["val/1.jpg", "val/3.jpg"]
    return ingested.quarantine.row(0, named=True)


@pytest.mark.parametrize("row", TABLE)
def test_bad_input_is_quarantined_with_line_found_and_expected_and_stops_nothing(
    row: str, tmp_path: Path
) -> None:
    bad = TABLE[row]
    write_folder(tmp_path, bad.line or bad.name.encode() + b"," + LABELS)
    if bad.data is not None:
        (tmp_path / bad.name).write_bytes(bad.data)
    refusal = only_refusal(ingest_fairface(tmp_path))
    assert (refusal["code"], refusal["stage"], refusal["line"]) == (bad.code, bad.stage, 3)
    at_index = bad.code in ("ragged_row", "wrong_encoding")
    default = "fairface_label_val.csv" if at_index else bad.name
    assert refusal["path"] == (default if bad.path is None else bad.path)
    assert refusal["dataset"] == "faces"
    assert "fairface_label_val.csv, line 3" in str(refusal["message"])
    assert bad.found in str(refusal["found"])
    assert bad.expected in str(refusal["expected"])
    assert refusal["expected"]


DECODED_RIGHT = {
    "CMYK": (
        "val/2.jpg",
        encoded(Image.new("CMYK", (16, 12), (0, 255, 255, 0)), "JPEG"),
        (16, 12),
        (255, 0, 0),
    ),
    "16-bit": ("val/2.png", sixteen_bit(), (16, 12), (128, 128, 128)),
    "palette": ("val/2.png", encoded(Image.new("P", (16, 12), 0), "PNG"), (16, 12), (0, 0, 0)),
    "alpha": (
        "val/2.png",
        encoded(Image.new("RGBA", (16, 12), (9, 9, 9, 0)), "PNG"),
        (16, 12),
        (255, 255, 255),
    ),
    "EXIF-rotated": ("val/2.jpg", rotated(), (12, 16), None),
    "non-ASCII file name": (
        "val/zoë 李.jpg",
        encoded(Image.new("RGB", (16, 12)), "JPEG"),
        (16, 12),
        (0, 0, 0),
    ),
    "upper-case extension": ("val/2.JPG", encoded(Image.new("RGB", (16, 12)), "JPEG"), (16, 12), (0, 0, 0)),
}


@pytest.mark.parametrize("row", DECODED_RIGHT)
def test_what_can_be_decoded_right_is_accepted(row: str, tmp_path: Path) -> None:
    name, data, size, colour = DECODED_RIGHT[row]
    write_folder(tmp_path, name.encode() + b"," + LABELS)
    (tmp_path / name).write_bytes(data)
    ingested = ingest_fairface(tmp_path)
    assert ingested.records["path"].to_list() == ["val/1.jpg", name, "val/3.jpg"]
    assert ingested.quarantine.is_empty()
    picture = decode(tmp_path / name)
    assert picture.size == size
    if colour is not None:
        assert np.abs(np.asarray(picture)[5, 5].astype(int) - colour).max() <= 3


@pytest.mark.parametrize("header", [HEADER, b"\xef\xbb\xbf" + HEADER])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_byte_order_mark_and_crlf_change_nothing(header: bytes, ending: bytes, tmp_path: Path) -> None:
    write_folder(tmp_path, b'"val/2.jpg",20-29,Male,"Black",False', header=header, ending=ending)
    (tmp_path / "val/2.jpg").write_bytes(encoded(noise(2), "JPEG"))
    ingested = ingest_fairface(tmp_path)
    assert ingested.quarantine.is_empty()
    assert ingested.records["race"].to_list() == ["East Asian", "Black", "White"]


def test_blank_lines_list_nothing_and_keep_the_line_numbers(tmp_path: Path) -> None:
    write_folder(tmp_path, b"\n  \nval/2.jpg," + LABELS)
    assert only_refusal(ingest_fairface(tmp_path))["line"] == 5


def test_conflicting_duplicates_are_all_quarantined(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "val/2.jpg").write_bytes((tmp_path / "val/1.jpg").read_bytes())
    ingested = ingest_fairface(tmp_path)
    assert ingested.records["path"].to_list() == ["val/3.jpg"]
    assert ingested.quarantine["path"].to_list() == ["val/1.jpg", "val/2.jpg"]
    assert ingested.quarantine["code"].to_list() == ["conflicting_duplicate"] * 2
    assert all("Black" in found and "East Asian" in found for found in ingested.quarantine["found"])


def test_a_row_repeated_with_other_labels_is_a_conflict(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/1.jpg," + LABELS)
    ingested = ingest_fairface(tmp_path)
    assert ingested.records["path"].to_list() == ["val/3.jpg"]
    assert ingested.quarantine["line"].to_list() == [2, 3]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_that_leads_out_is_refused_and_one_that_stays_is_followed(kind: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    write_folder(root, b"val/2.jpg," + LABELS)
    outside.mkdir()
    (outside / "2.jpg").write_bytes(encoded(noise(2), "JPEG"))
    if kind == "file":
        (root / "val/2.jpg").symlink_to(outside / "2.jpg")
        refusal = only_refusal(ingest_fairface(root))
        assert (refusal["code"], refusal["stage"]) == ("path_outside_root", "path")
    else:
        (root / "val").rename(outside / "val")
        (root / "val").symlink_to(outside / "val", target_is_directory=True)
        ingested = ingest_fairface(root)
        assert ingested.records.is_empty()
        assert ingested.quarantine["code"].unique().to_list() == ["path_outside_root"]
        return
    (root / "val/2.jpg").unlink()
    (root / "kept.jpg").write_bytes((outside / "2.jpg").read_bytes())
    (root / "val/2.jpg").symlink_to("../kept.jpg")
    assert ingest_fairface(root).quarantine.is_empty()


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "val/2.jpg").symlink_to("2.jpg")
    assert only_refusal(ingest_fairface(tmp_path))["code"] == "unreadable"


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    os.mkfifo(tmp_path / "val/2.jpg")
    assert only_refusal(ingest_fairface(tmp_path))["code"] == "not_a_file"


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_a_file_that_may_not_be_read_is_quarantined(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Permissions do not stop the superuser, as whom tests may run, so the refusal is planted at `open`.
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "val/2.jpg").write_bytes(encoded(noise(2), "JPEG"))
    really_open = Path.open

    def refusing(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "2.jpg":
            raise error
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refusing)
    refusal = only_refusal(ingest_fairface(tmp_path))
    assert (refusal["code"], refusal["found"]) == ("unreadable", error.strerror)


def test_every_column_of_the_quarantine_has_its_type_even_when_empty(tmp_path: Path) -> None:
    write_folder(tmp_path, b"")
    ingested = ingest_fairface(tmp_path)
    assert ingested.listed == 2
    assert ingested.quarantine.is_empty()
    assert ingested.quarantine.schema["line"] == pl.Int64
    assert set(ingested.records.schema.dtypes()) == {pl.String}
