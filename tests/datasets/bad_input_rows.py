"""The rows of the table "Bad input, and what it gets": what is written, and what must be said of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image
from written_pictures import BLACK, BLUE, GREEN, RED, WHITE, encoded, halves, jpeg_that_claims, noise

HEADER = b"file,age,gender,race,service_test"
SOUND = (b"val/1.jpg,3-9,Male,East Asian,False", b"val/3.jpg,30-39,Female,White,True")
LABELS = b"20-29,Male,Black,False"


WORDS = (
    "zero-byte", "truncated", "corrupt", "wrong extension", "non-image bytes", "decompression bomb", "animated",
    "CMYK", "16-bit", "palette", "alpha", "EXIF-rotated", "1-pixel", "unreadable permission", "missing file",
    "path that leaves the root: ../", "path that leaves the root: absolute",
    "path that leaves the root: symlink out", "duplicate index row", "duplicate bytes: same labels",
    "duplicate bytes: different labels", "unknown label", "ragged CSV row", "wrong encoding", "BOM", "CRLF",
    "non-ASCII file name",
)  # fmt: skip
"""What the table lists; each has at least one case below that begins with these words."""


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


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


def leaving(path: str) -> Bad:
    """Return the row of a path that the index lists and that leaves the root."""
    return Bad(
        "path_outside_root",
        "path",
        line=path.encode() + b"," + LABELS,
        found=path,
        expected="a path below it",
        path=path,
    )


def animated(kind: str) -> Bad:
    return Bad(
        "animated",
        name=f"val/2.{kind.lower()}",
        data=encoded(noise(2), kind, save_all=True, append_images=[noise(3)]),
        found="2 frames",
        expected="one picture",
    )


def refused(error: OSError) -> Bad:
    """Return the row of a sound file that cannot be opened for this reason.

    Permissions do not stop the superuser, as whom tests may run, so the refusal is planted at both ways to open.
    """
    return Bad(
        "unreadable",
        data=encoded(noise(2), "JPEG"),
        refused_by=error,
        found=str(error.strerror),
        expected="a readable file",
    )


QUARANTINED = {
    "zero-byte": Bad("empty_file", data=b"", found="0 bytes", expected="JPEG, PNG or WEBP"),
    "truncated": Bad("truncated", data=encoded(noise(2), "JPEG")[:-40], expected="whole file"),
    "truncated: PNG": Bad("truncated", name="val/2.png", data=encoded(noise(2), "PNG")[:-12], expected="whole file"),
    "corrupt": Bad("corrupt", data=b"\xff\xd8\xff" + b"\0" * 100, expected="sound file"),
    "corrupt: PNG": Bad("corrupt", name="val/2.png", data=flipped(encoded(noise(2), "PNG"), 60), expected="sound file"),
    "wrong extension": Bad("wrong_extension", data=encoded(noise(2), "PNG"), found=".jpg on a PNG", expected=".png"),
    "non-image bytes": Bad("not_an_image", data=b"<html></html>", found="3c 68 74 6d", expected="JPEG, PNG or WEBP"),
    "non-image bytes: GIF": Bad(
        "unsupported_format", name="val/2.gif", data=encoded(noise(2), "GIF"), found="GIF", expected="JPEG, PNG or WEBP"
    ),
    "decompression bomb": Bad(
        "decompression_bomb",
        data=jpeg_that_claims(65535, 65535),
        found="65535 × 65535",
        expected="at most 89478485 pixels",
    ),
    "animated": animated("WEBP"),
    "animated: PNG": animated("PNG"),
    "1-pixel": Bad("too_small", data=encoded(Image.new("RGB", (1, 1)), "JPEG"), found="1 × 1", expected="2 × 2"),
    "unreadable permission": refused(PermissionError(13, "Permission denied")),
    "unreadable permission: input error": refused(OSError(5, "Input/output error")),
    "unreadable permission: name too long": Bad(
        "unreadable",
        line=b"val/" + b"x" * 280 + b".jpg," + LABELS,
        found="name too long",
        expected="a readable file",
        path="val/" + "x" * 280 + ".jpg",
    ),
    "missing file": Bad("missing_file", expected="a file"),
    "missing file: link to nothing": Bad("missing_file", link="nowhere.jpg", expected="a file"),
    "path that leaves the root: ../": leaving("../../val/2.jpg"),
    "path that leaves the root: ../ within": leaving("val/../val/2.jpg"),
    "path that leaves the root: absolute": leaving("/etc/val/2.jpg"),
    "path that leaves the root: absolute, Windows": leaving("C:/val/2.jpg"),
    "path that leaves the root: symlink out": Bad(
        "path_outside_root", "path", link="../../outside.jpg", found="val/2.jpg", expected="a file below it"
    ),
    "path that leaves the root: symlink out, absolute": Bad(
        "path_outside_root", "path", link="/etc/hostname", found="val/2.jpg", expected="a file below it"
    ),
    "control character": Bad("bad_path", "path", line=b"val/\x1b[31m2.jpg," + LABELS, path="val/\\u001b[31m2.jpg"),
    "direction change": Bad("bad_path", "path", line="val/\u202egpj.jpg,".encode() + LABELS, path="val/\\u202egpj.jpg"),
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
        "duplicate_row", "duplicates", line=SOUND[0], found="val/1.jpg", expected="kept: line 2", path="val/1.jpg"
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
        "unknown_label", "labels", line=b"val/2.jpg,20-29,Male,Martian,False", found="Martian", expected="White, Black"
    ),
    "unknown label: gender": Bad(
        "unknown_label", "labels", line=b"val/2.jpg,20-29,male,Black,False", found="male", expected="Male, Female"
    ),
    "unknown label: age": Bad(
        "unknown_label", "labels", line=b"val/2.jpg,25,Male,Black,False", found="25", expected="20-29"
    ),
    "unknown label: padded": Bad("unknown_label", "labels", line=b"val/2.jpg,20-29, Male,Black,False", found="' Male'"),
    "ragged CSV row: short": Bad(
        "ragged_row", "index", line=b"val/2.jpg,20-29,Male", found="3 fields", expected="5 fields"
    ),
    "ragged CSV row: long": Bad(
        "ragged_row", "index", line=b"val/2.jpg," + LABELS + b",x", found="6 fields", expected="5 fields"
    ),
    "ragged CSV row: open quote": Bad(
        "ragged_row", "index", line=b'val/2.jpg,20-29,Male,"Black,False', expected="file,age"
    ),
    "wrong encoding": Bad("wrong_encoding", "index", line=b"val/\xe9.jpg," + LABELS, found="\\xe9", expected="UTF-8"),
}


def side_by_side(left: object, right: object, mode: str = "RGB") -> Image.Image:
    return halves(left, right, mode=mode, size=(16, 12))


def paletted(left: tuple[int, ...], right: tuple[int, ...]) -> Image.Image:
    picture = side_by_side(0, 1, "P")
    picture.putpalette([*left, *right])
    return picture


def sixteen_bit(left: int, right: int) -> bytes:
    row = np.repeat(np.array([left, right], np.uint16), 8)
    return encoded(Image.fromarray(np.tile(row, (12, 1))), "PNG")


def turned() -> bytes:
    """Return a picture that lies on its side, red on top, and says so: upright it is red left of blue."""
    exif = Image.Exif()
    exif[0x0112] = 8
    return encoded(side_by_side(RED, BLUE).transpose(Image.Transpose.ROTATE_270), "JPEG", quality=95, exif=exif)


@dataclass(frozen=True)
class Sound:
    """One row of the table that is accepted: what is written, and both colours that it must show upright."""

    data: bytes
    left: tuple[int, int, int] = RED
    right: tuple[int, int, int] = BLUE
    name: str = "val/2.jpg"
    header: bytes = HEADER
    ending: bytes = b"\n"


PLAIN = encoded(side_by_side(RED, BLUE), "JPEG", quality=95)
DECODED_RIGHT = {
    "CMYK": Sound(encoded(side_by_side((0, 255, 255, 0), (255, 255, 0, 0), "CMYK"), "JPEG", quality=95)),
    "16-bit": Sound(sixteen_bit(0x8000, 0x0100), (128, 128, 128), (1, 1, 1), "val/2.png"),
    "16-bit: bright": Sound(sixteen_bit(0xFFFF, 0), WHITE, BLACK, "val/2.png"),
    "palette": Sound(encoded(paletted(RED, GREEN), "PNG"), RED, GREEN, "val/2.png"),
    "palette: one entry clear": Sound(encoded(paletted(RED, GREEN), "PNG", transparency=1), RED, WHITE, "val/2.png"),
    "alpha": Sound(encoded(side_by_side((9, 9, 9, 0), (0, 0, 255, 255), "RGBA"), "PNG"), WHITE, BLUE, "val/2.png"),
    "alpha: half, WEBP": Sound(
        encoded(side_by_side((0, 0, 0, 128), (255, 0, 0, 128), "RGBA"), "WEBP", lossless=True, exact=True),
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
