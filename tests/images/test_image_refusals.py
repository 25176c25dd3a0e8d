"""What is refused, by check and by decode alike, with its reason, and before it costs anything."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from written_pictures import BLUE, RED, encoded, halves, jpeg_that_claims, png

from plumbline.errors import DatasetError, ImageRejected
from plumbline.images import decoding
from plumbline.images.decoding import check, decode


@pytest.mark.parametrize("kind", ["JPEG", "progressive JPEG", "PNG", "WEBP", "lossless WEBP"])
def test_a_file_cut_anywhere_is_refused_by_check_and_by_decode_alike(kind: str) -> None:
    noise = Image.fromarray(np.random.default_rng(3).integers(0, 256, (40, 50, 3), dtype=np.uint8))
    options = {"progressive": "progressive" in kind, "lossless": "lossless" in kind}
    whole = encoded(noise, kind.split()[-1], **options)
    check(whole)
    for length in np.linspace(1, len(whole) - 1, 40).astype(int):
        codes = []
        for read in (decode, check):
            with pytest.raises(ImageRejected) as caught:
                read(whole[:length])
            codes.append(caught.value.code)
        assert codes[0] == codes[1]
        assert codes[0] in {"truncated", "corrupt", "not_an_image"}


@pytest.mark.parametrize("position", [30, 45, 60, -6])
def test_a_png_with_a_changed_byte_is_refused(position: int) -> None:
    data = bytearray(encoded(halves(), "PNG"))
    data[position] ^= 0xFF
    with pytest.raises(ImageRejected) as caught:
        decode(bytes(data))
    assert caught.value.code in {"corrupt", "truncated", "decompression_bomb"}


def _webp_that_claims(width: int, height: int) -> bytes:
    canvas = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + canvas
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("side", [9_460, 16_000, 60_000])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_bomb_is_an_error_before_any_pixel_is_decoded(kind: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("pixels were decoded"))
    bombs = {
        "JPEG": lambda: jpeg_that_claims(side, side),
        "PNG": lambda: png((side, side, 8, 2), b""),
        "WEBP": lambda: _webp_that_claims(side, side),
    }
    with pytest.raises(ImageRejected) as caught:
        decode(bombs[kind]())
    assert caught.value.code in ({"decompression_bomb"} if kind != "WEBP" else {"decompression_bomb", "corrupt"})


def test_the_largest_picture_is_the_one_where_pillow_begins_to_warn() -> None:
    assert decoding.MAX_PIXELS == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_strip_that_a_model_would_blow_up_is_refused(kind: str) -> None:
    decode(encoded(Image.new("RGB", (2, 400)), kind))
    for size in ((2, 402), (402, 2)):
        with pytest.raises(ImageRejected, match="too narrow") as caught:
            decode(encoded(Image.new("RGB", size), kind))
        assert caught.value.code == "decompression_bomb"
        assert decoding.plain_jpeg_size(encoded(Image.new("RGB", size), "JPEG")) is None


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1)])
def test_a_one_pixel_side_is_too_small(size: tuple[int, int]) -> None:
    with pytest.raises(ImageRejected) as caught:
        decode(encoded(Image.new("RGB", size), "PNG"))
    assert caught.value.code == "too_small"
    assert str(size[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"\0" * 200, "not_an_image"),
        (b"<html>not found</html>", "not_an_image"),
        (b"\xff\xd8\xff", "corrupt"),
        (b"\xff\xd8\xff" + b"\0" * 100, "corrupt"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "corrupt"),
        (b"\x89PNG\r\n\x1a\n", "truncated"),
        (encoded(halves(), "GIF"), "unsupported_format"),
        (encoded(halves(), "BMP"), "unsupported_format"),
        (encoded(halves(), "TIFF"), "unsupported_format"),
    ],
)
def test_what_is_no_accepted_image_is_named(data: bytes, code: str) -> None:
    for read in (decode, check):
        with pytest.raises(ImageRejected) as caught:
            read(data)
        assert caught.value.code == code


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_an_animation_is_refused(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE)]
    with pytest.raises(ImageRejected) as caught:
        decode(encoded(frames[0], kind, save_all=True, append_images=frames[1:]))
    assert caught.value.code == "animated"


def test_the_extension_must_agree_with_the_content(tmp_path: Path) -> None:
    for name, kind, accepted in [
        ("a.jpg", "JPEG", True),
        ("b.JPEG", "JPEG", True),
        ("c.png", "JPEG", False),
        ("d.jpg", "PNG", False),
        ("e.webp", "WEBP", True),
        ("f", "PNG", False),
    ]:
        path = tmp_path / name
        path.write_bytes(encoded(halves(), kind))
        if accepted:
            assert decode(path).size == (32, 16)
            assert decode(str(path)).size == (32, 16)
        else:
            with pytest.raises(ImageRejected) as caught:
                decode(path)
            assert caught.value.code == "wrong_extension"
            assert kind in str(caught.value)


def test_missing_folder_and_oversized_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_FILE_BYTES", 1000)
    (tmp_path / "big.jpg").write_bytes(b"\xff" * 1001)
    (tmp_path / "folder.jpg").mkdir()
    cases = {
        "missing_file": "absent.jpg",
        "file_too_large": "big.jpg",
        "not_a_file": "folder.jpg",
        "unreadable": "n\0ul.jpg",
    }
    for code, name in cases.items():
        with pytest.raises(ImageRejected) as caught:
            decode(tmp_path / name)
        assert caught.value.code == code


def test_out_of_memory_is_not_blamed_on_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(_: ImageFile.ImageFile) -> None:
        raise MemoryError

    monkeypatch.setattr(ImageFile.ImageFile, "load", exhausted)
    with pytest.raises(MemoryError):
        decode(encoded(halves(), "JPEG"))


def test_pillow_may_not_be_told_to_accept_truncated_files(
    monkeypatch: pytest.MonkeyPatch, jpeg: Callable[..., bytes]
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(DatasetError, match="LOAD_TRUNCATED_IMAGES"):
        decode(jpeg())
