"""The table "Bad input, and what it gets": each row, through a whole ingestion, beside two sound images."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from plumbline.datasets import Ingested, ingest, reader_for
from plumbline.images.decoding import decode

HEADER = b"file,age,gender,race,service_test"
SOUND = (b"val/1.jpg,3-9,Male,East Asian,False", b"val/3.jpg,30-39,Female,White,True")
LABELS = b"20-29,Male,Black,False"
RED, GREEN, BLUE, BLACK, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0), (255, 255, 255)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8))


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def bomb() -> bytes:
    data = encoded(noise(2), "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + b"\xff\xff\xff\xff" + data[frame + 9 :]


WORDS = (
    "zero-byte", "truncated", "corrupt", "wrong extension", "non-image bytes", "decompression bomb", "animated",
    "CMYK", "16-bit", "palette", "alpha", "EXIF-rotated", "1-pixel", "unreadable permission", "missing file",
    "path that leaves the root: ../", "path that leaves the root: absolute",
    "path that leaves the root: symlink out", "duplicate index row", "duplicate bytes: same labels",
    "duplicate bytes: different labels", "unknown label", "ragged CSV row", "wrong encoding", "BOM", "CRLF",
    "non-ASCII file name",
)  # fmt: skip
"""What the table lists; each has at least one case below that begins with these words."""


@dataclass(frozen=True)
class Bad:
    """One row of the table: what is written, which line lists it, and what the quarantine must say of it.

    With `link`, the file is a link to this place. With `refused_by`, it cannot be opened for this reason. With
    `takes`, the first sound image is quarantined with it.
    """

    code: str
    stage: str = "image"
    name: str = "val/2.jpg"
    data: bytes | None = None
    line: bytes | None = None
    found: str = ""
    expected: str = ""
    path: str | None = None
    link: str | None = None
    refused_by: OSError | None = None
    takes: bool = False


QUARANTINED = {
    "zero-byte": Bad("empty_file", data=b"", found="0 bytes", expected="JPEG, PNG or WEBP"),
    "truncated": Bad("truncated", data=encoded(noise(2), "JPEG")[:-40], expected="whole file"),
    "truncated: PNG": Bad(
        "truncated", name="val/2.png", data=encoded(noise(2), "PNG")[:-12], expected="whole file"
    ),
    "corrupt": Bad("corrupt", data=b"\xff\xd8\xff" + b"\0" * 100, expected="sound file"),
    "corrupt: PNG": Bad(
        "corrupt",
        name="val/2.png",
        data=flipped(encoded(noise(2), "PNG"), 60),
        expected="sound file",
    ),
    "wrong extension": Bad(
        "wrong_extension", data=encoded(noise(2), "PNG"), found=".jpg on a PNG", expected=".png"
    ),
    "non-image bytes": Bad(
        "not_an_image", data=b"<html></html>", found="3c 68 74 6d", expected="JPEG, PNG or WEBP"
    ),
    "non-image bytes: GIF": Bad(
        "unsupported_format",
        name="val/2.gif",
        data=encoded(noise(2), "GIF"),
        found="GIF",
        expected="JPEG, PNG or WEBP",
    ),
    "decompression bomb": Bad(
        "decompression_bomb", data=bomb(), found="65535 × 65535", expected="at most 89478485 pixels"
    ),
    "animated": Bad(
        "animated",
        name="val/2.webp",
        data=encoded(noise(2), "WEBP", save_all=True, append_images=[noise(3)]),
        found="2 frames",
        expected="one picture",
    ),
    "animated: PNG": Bad(
        "animated",
        name="val/2.png",
        data=encoded(noise(2), "PNG", save_all=True, append_images=[noise(3)]),
        found="2 frames",
        expected="one picture",
    ),
    "1-pixel": Bad(
        "too_small", data=encoded(Image.new("RGB", (1, 1)), "JPEG"), found="1 × 1", expected="2 × 2"
    ),
    # Permissions do not stop the superuser, as whom tests may run, so the refusal is planted at both ways to open.
    "unreadable permission": Bad(
        "unreadable",
        data=encoded(noise(2), "JPEG"),
        refused_by=PermissionError(13, "Permission denied"),
        found="Permission denied",
        expected="a readable file",
    ),
    "unreadable permission: input error": Bad(
        "unreadable",
        data=encoded(noise(2), "JPEG"),
        refused_by=OSError(5, "Input/output error"),
        found="Input/output error",
        expected="a readable file",
    ),
    "unreadable permission: name too long": Bad(
        "unreadable",
        line=b"val/" + b"x" * 280 + b".jpg," + LABELS,
        found="name too long",
        expected="a readable file",
        path="val/" + "x" * 280 + ".jpg",
    ),
    "missing file": Bad("missing_file", expected="a file"),
    "missing file: link to nothing": Bad("missing_file", link="nowhere.jpg", expected="a file"),
    "path that leaves the root: ../": Bad(
        "path_outside_root",
        "path",
        line=b"../../val/2.jpg," + LABELS,
        found="../../val/2.jpg",
        expected="a path below it",
        path="../../val/2.jpg",
    ),
    "path that leaves the root: ../ within": Bad(
        "path_outside_root",
        "path",
        line=b"val/../val/2.jpg," + LABELS,
        found="val/../val/2.jpg",
        expected="a path below it",
        path="val/../val/2.jpg",
    ),
    "path that leaves the root: absolute": Bad(
        "path_outside_root",
        "path",
        line=b"/etc/val/2.jpg," + LABELS,
        found="/etc/val/2.jpg",
        expected="a path below it",
        path="/etc/val/2.jpg",
    ),
    "path that leaves the root: absolute, Windows": Bad(
        "path_outside_root",
        "path",
        line=b"C:/val/2.jpg," + LABELS,
        found="C:/val/2.jpg",
        expected="a path below it",
        path="C:/val/2.jpg",
    ),
    "path that leaves the root: symlink out": Bad(
        "path_outside_root", "path", link="../../outside.jpg", found="val/2.jpg", expected="a file below it"
    ),
    "path that leaves the root: symlink out, absolute": Bad(
        "path_outside_root", "path", link="/etc/hostname", found="val/2.jpg", expected="a file below it"
    ),
    "control character": Bad(
        "bad_path", "path", line=b"val/\x1b[31m2.jpg," + LABELS, path="val/\\u001b[31m2.jpg"
    ),
    "direction change": Bad(
        "bad_path", "path", line="val/\u202egpj.jpg,".encode() + LABELS, path="val/\\u202egpj.jpg"
    ),
    "folder": Bad(
        "wrong_split",
        "index",
        line=b"train/2.jpg," + LABELS,
        found="train/2.jpg",
        expected="val/N.jpg",
        path="train/2.jpg",
    ),
    "no folder": Bad("wrong_split", "index", line=b"2.jpg," + LABELS, found="2.jpg", path="2.jpg"),
    "empty path": Bad("wrong_split", "index", line=b"," + LABELS, path=""),
    "duplicate index row": Bad(
        "duplicate_row",
        "duplicates",
        line=SOUND[0],
        found="val/1.jpg",
        expected="kept: line 2",
        path="val/1.jpg",
    ),
    "duplicate index row: different labels": Bad(
        "conflicting_duplicate",
        "duplicates",
        line=b"val/1.jpg," + LABELS,
        found="Black",
        expected="one set of labels",
        path="val/1.jpg",
        takes=True,
    ),
    "duplicate bytes: same labels": Bad(
        "duplicate",
        "duplicates",
        data=encoded(noise(1), "JPEG"),
        line=b"val/2.jpg,3-9,Male,East Asian,True",
        found="sha256",
        expected="kept: val/1.jpg",
    ),
    "duplicate bytes: different labels": Bad(
        "conflicting_duplicate",
        "duplicates",
        data=encoded(noise(1), "JPEG"),
        found="Black",
        expected="one set of labels",
        takes=True,
    ),
    "unknown label: race": Bad(
        "unknown_label",
        "labels",
        line=b"val/2.jpg,20-29,Male,Martian,False",
        found="Martian",
        expected="White, Black",
    ),
    "unknown label: gender": Bad(
        "unknown_label",
        "labels",
        line=b"val/2.jpg,20-29,male,Black,False",
        found="male",
        expected="Male, Female",
    ),
    "unknown label: age": Bad(
        "unknown_label", "labels", line=b"val/2.jpg,25,Male,Black,False", found="25", expected="20-29"
    ),
    "unknown label: padded": Bad(
        "unknown_label", "labels", line=b"val/2.jpg,20-29, Male,Black,False", found="' Male'"
    ),
    "ragged CSV row: short": Bad(
        "ragged_row", "index", line=b"val/2.jpg,20-29,Male", found="3 fields", expected="5 fields"
    ),
    "ragged CSV row: long": Bad(
        "ragged_row", "index", line=b"val/2.jpg," + LABELS + b",x", found="6 fields", expected="5 fields"
    ),
    "ragged CSV row: open quote": Bad(
        "ragged_row", "index", line=b'val/2.jpg,20-29,Male,"Black,False', expected="file,age"
    ),
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


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    """Plant the refusal on both ways in which ingestion opens a file."""

    def refusing(really_open: Callable[..., object]) -> Callable[..., object]:
        def unless_named(path: object, *arguments: object, **options: object) -> object:
            if str(path).endswith(name):
                raise error
            return really_open(path, *arguments, **options)

        return unless_named

    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(os, "open", refusing(os.open))


@pytest.mark.parametrize("row", QUARANTINED)
def test_bad_input_is_quarantined_with_line_found_and_expected_and_stops_nothing(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, root = QUARANTINED[row], tmp_path / "root"
    write_folder(root, bad.line or bad.name.encode() + b"," + LABELS)
    (tmp_path / "outside.jpg").write_bytes(encoded(noise(2), "JPEG"))
    if bad.data is not None:
        (root / bad.name).write_bytes(bad.data)
    if bad.link is not None:
        (root / bad.name).symlink_to(bad.link)
    if bad.refused_by is not None:
        refuse_to_open(monkeypatch, bad.name, bad.refused_by)
    ingested = ingest_fairface(root)
    if bad.takes:
        assert ingested.listed == 3
        assert ingested.records["path"].to_list() == ["val/3.jpg"]
        assert ingested.quarantine.select("path", "line", "code").row(0) == ("val/1.jpg", 2, bad.code)
        assert "East Asian" in ingested.quarantine["found"][0]
        refusal = ingested.quarantine.row(1, named=True)
    else:
        refusal = only_refusal(ingested)
    assert (refusal["code"], refusal["stage"], refusal["line"]) == (bad.code, bad.stage, 3)
    at_index = bad.code in ("ragged_row", "wrong_encoding")
    default = "fairface_label_val.csv" if at_index else bad.name
    assert refusal["path"] == (default if bad.path is None else bad.path)
    assert refusal["dataset"] == "faces"
    assert "fairface_label_val.csv, line 3" in str(refusal["message"])
    assert bad.found in str(refusal["found"])
    assert bad.expected in str(refusal["expected"])
    assert refusal["expected"]


def halves(left: object, right: object, mode: str = "RGB") -> Image.Image:
    """Return 16 × 12 pixels of two colours: what is turned, mirrored or misread shows."""
    picture = Image.new(mode, (16, 12), left)
    picture.paste(right, (8, 0, 16, 12))
    return picture


def paletted(left: tuple[int, ...], right: tuple[int, ...]) -> Image.Image:
    picture = halves(0, 1, "P")
    picture.putpalette([*left, *right])
    return picture


def sixteen_bit(left: int, right: int) -> bytes:
    row = np.repeat(np.array([left, right], np.uint16), 8)
    return encoded(Image.fromarray(np.tile(row, (12, 1))), "PNG")


def turned() -> bytes:
    """Return a picture that lies on its side, red on top, and says so: upright it is red left of blue."""
    exif = Image.Exif()
    exif[0x0112] = 8
    return encoded(halves(RED, BLUE).transpose(Image.Transpose.ROTATE_270), "JPEG", quality=95, exif=exif)


@dataclass(frozen=True)
class Sound:
    """One row of the table that is accepted: what is written, and both colours that it must show upright."""

    data: bytes
    left: tuple[int, int, int] = RED
    right: tuple[int, int, int] = BLUE
    name: str = "val/2.jpg"
    header: bytes = HEADER
    ending: bytes = b"\n"


PLAIN = encoded(halves(RED, BLUE), "JPEG", quality=95)
DECODED_RIGHT = {
    "CMYK": Sound(encoded(halves((0, 255, 255, 0), (255, 255, 0, 0), "CMYK"), "JPEG", quality=95)),
    "16-bit": Sound(sixteen_bit(0x8000, 0x0100), (128, 128, 128), (1, 1, 1), "val/2.png"),
    "16-bit: bright": Sound(sixteen_bit(0xFFFF, 0), WHITE, BLACK, "val/2.png"),
    "palette": Sound(encoded(paletted(RED, GREEN), "PNG"), RED, GREEN, "val/2.png"),
    "palette: one entry clear": Sound(
        encoded(paletted(RED, GREEN), "PNG", transparency=1), RED, WHITE, "val/2.png"
    ),
    "alpha": Sound(encoded(halves((9, 9, 9, 0), (0, 0, 255, 255), "RGBA"), "PNG"), WHITE, BLUE, "val/2.png"),
    "alpha: half, WEBP": Sound(
        encoded(halves((0, 0, 0, 128), (255, 0, 0, 128), "RGBA"), "WEBP", lossless=True, exact=True),
        (127, 127, 127),
        (255, 127, 127),
        "val/2.webp",
    ),
    "EXIF-rotated": Sound(turned()),
    "non-ASCII file name": Sound(PLAIN, name="val/zoë 李.jpg"),
    "upper-case extension": Sound(PLAIN, name="val/2.JPG"),
    "BOM": Sound(PLAIN, header=b"\xef\xbb\xbf" + HEADER),
    "CRLF": Sound(PLAIN, ending=b"\r\n"),
    "BOM and CRLF": Sound(PLAIN, header=b"\xef\xbb\xbf" + HEADER, ending=b"\r\n"),
}


@pytest.mark.parametrize("row", DECODED_RIGHT)
def test_what_can_be_decoded_right_is_accepted(row: str, tmp_path: Path) -> None:
    sound = DECODED_RIGHT[row]
    line = f'"{sound.name}",20-29,Male,"Black",False'.encode()
    write_folder(tmp_path, line, header=sound.header, ending=sound.ending)
    (tmp_path / sound.name).write_bytes(sound.data)
    ingested = ingest_fairface(tmp_path)
    assert ingested.records["path"].to_list() == ["val/1.jpg", sound.name, "val/3.jpg"]
    assert ingested.records["race"].to_list() == ["East Asian", "Black", "White"]
    assert ingested.quarantine.is_empty()
    picture = decode(tmp_path / sound.name)
    assert (picture.mode, picture.size) == ("RGB", (16, 12))
    pixels = np.asarray(picture).astype(int)
    assert np.abs(pixels[6, 3] - sound.left).max() <= 3
    assert np.abs(pixels[6, 12] - sound.right).max() <= 3


@pytest.mark.parametrize("words", WORDS)
def test_every_row_of_the_table_has_a_case(words: str) -> None:
    assert any(case.startswith(words) for case in (*QUARANTINED, *DECODED_RIGHT))


def test_blank_lines_list_nothing_and_keep_the_line_numbers(tmp_path: Path) -> None:
    write_folder(tmp_path, b"\n  \nval/2.jpg," + LABELS)
    assert only_refusal(ingest_fairface(tmp_path))["line"] == 5


def test_a_folder_that_is_a_link_out_loses_all_its_images(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    write_folder(root, b"val/2.jpg," + LABELS)
    (root / "val").rename(outside)
    (root / "val").symlink_to(outside, target_is_directory=True)
    ingested = ingest_fairface(root)
    assert ingested.records.is_empty()
    assert ingested.quarantine["code"].to_list() == ["path_outside_root"] * 3


def test_a_link_that_stays_below_the_root_is_followed(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "kept.jpg").write_bytes(encoded(noise(2), "JPEG"))
    (tmp_path / "val/2.jpg").symlink_to("../kept.jpg")
    assert ingest_fairface(tmp_path).quarantine.is_empty()


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "val/2.jpg").symlink_to("2.jpg")
    assert only_refusal(ingest_fairface(tmp_path))["code"] == "unreadable"


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    os.mkfifo(tmp_path / "val/2.jpg")
    assert only_refusal(ingest_fairface(tmp_path))["code"] == "not_a_file"


def test_every_column_of_the_quarantine_has_its_type_even_when_empty(tmp_path: Path) -> None:
    write_folder(tmp_path, b"")
    ingested = ingest_fairface(tmp_path)
    assert ingested.listed == 2
    assert ingested.quarantine.is_empty()
    assert ingested.quarantine.schema["line"] == pl.Int64
    assert set(ingested.records.schema.dtypes()) == {pl.String}
