"""Decoding: right colours and the right side up, or a refusal with its reason."""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, PngImagePlugin

from plumbline.errors import DatasetError, ImageRejected
from plumbline.images import decoding
from plumbline.images.decoding import check, decode

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


def two_halves() -> Image.Image:
    """Red on the left, blue on the right, 32 × 16: what is turned or mirrored shows."""
    picture = Image.new("RGB", (32, 16), BLUE)
    picture.paste(RED, (0, 0, 16, 16))
    return picture


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def png(header: tuple[int, int, int, int], rows: bytes, *, key: bytes = b"") -> bytes:
    """Write a PNG by hand: (width, height, depth, colour type), filtered rows, transparent colour."""
    width, height, depth, colour = header

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    start = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    body = (chunk(b"tRNS", key) if key else b"") + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + start + body + chunk(b"IEND", b"")


def grey_16_bit(values: list[list[int]], *, key: bytes = b"") -> bytes:
    rows = b"".join(b"\0" + struct.pack(f">{len(row)}H", *row) for row in values)
    return png((len(values[0]), len(values), 16, 0), rows, key=key)


def assert_halves(picture: Image.Image, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert picture.mode == "RGB" and picture.size == (32, 16)
    pixels = np.asarray(picture).astype(int)
    assert np.abs(pixels[8, 4] - left).max() <= 3
    assert np.abs(pixels[8, 27] - right).max() <= 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("options", [{}, {"quality": 95, "progressive": True, "lossless": True}])
def test_accepted_formats_keep_their_colours(kind: str, options: dict[str, object]) -> None:
    assert_halves(decode(encoded(two_halves(), kind, **options)), RED, BLUE)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    ("orientation", "undo"),
    [
        (2, Image.Transpose.FLIP_LEFT_RIGHT),
        (3, Image.Transpose.ROTATE_180),
        (4, Image.Transpose.FLIP_TOP_BOTTOM),
        (5, Image.Transpose.TRANSPOSE),
        (6, Image.Transpose.ROTATE_90),
        (7, Image.Transpose.TRANSVERSE),
        (8, Image.Transpose.ROTATE_270),
    ],
)
def test_every_exif_orientation_comes_out_upright(kind: str, orientation: int, undo: Image.Transpose) -> None:
    upright = two_halves()
    upright.paste((0, 255, 0), (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True}
    decoded = decode(encoded(upright.transpose(undo), kind, exif=exif, **options))
    assert np.abs(np.asarray(decoded).astype(int) - np.asarray(upright)).max() <= 5
    assert not decoded.getexif(), "a second reader would turn it again"


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0not a tiff header", b"Exif\0\0II*\0\xff\xff\xff\x7f", b"Exif\0\0"]
)
def test_a_damaged_exif_block_does_not_cost_the_picture(exif: bytes) -> None:
    assert_halves(decode(encoded(two_halves(), "JPEG", quality=95, exif=exif)), RED, BLUE)


def test_cmyk_becomes_rgb() -> None:
    assert_halves(decode(encoded(two_halves().convert("CMYK"), "JPEG", quality=95)), RED, BLUE)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_alpha_is_composited_on_white(kind: str) -> None:
    layer = two_halves().convert("RGBA")
    layer.paste((0, 0, 255, 0), (16, 0, 32, 16))
    assert_halves(decode(encoded(layer, kind, lossless=True)), RED, WHITE)


def test_half_transparent_grey_is_half_way_to_white() -> None:
    picture = decode(encoded(Image.new("LA", (32, 16), (0, 128)), "PNG"))
    assert_halves(picture, (127, 127, 127), (127, 127, 127))


def test_palette_with_and_without_a_transparent_entry() -> None:
    palette = two_halves().quantize(4)
    assert_halves(decode(encoded(palette, "PNG")), RED, BLUE)
    blue = palette.getpixel((27, 8))
    assert_halves(decode(encoded(palette, "PNG", transparency=blue)), RED, WHITE)


def test_a_palette_entry_that_is_half_clear_is_half_way_to_white() -> None:
    palette = Image.new("P", (32, 16), 0)
    palette.paste(1, (16, 0, 32, 16))
    palette.putpalette([*RED, *BLUE])
    picture = decode(encoded(palette, "PNG", transparency=bytes((255, 128))))
    assert_halves(picture, RED, (127, 127, 255))


def test_one_bit_and_grey() -> None:
    picture = Image.new("1", (32, 16), 0)
    picture.paste(1, (16, 0, 32, 16))
    assert_halves(decode(encoded(picture, "PNG")), (0, 0, 0), WHITE)
    assert_halves(decode(encoded(Image.new("L", (32, 16), 90), "JPEG")), (90, 90, 90), (90, 90, 90))


def test_16_bit_grey_is_scaled_and_not_clipped() -> None:
    values = [[0, 65535], [256, 32768]]
    assert np.asarray(decode(grey_16_bit(values)))[..., 0].tolist() == [[0, 255], [1, 128]]
    with_key = decode(grey_16_bit(values, key=struct.pack(">H", 256)))
    assert np.asarray(with_key)[..., 0].tolist() == [[0, 255], [255, 128]]


def test_16_bit_colour_is_scaled_and_refused_where_its_transparent_colour_is_lost() -> None:
    rows = (b"\0" + struct.pack(">6H", 65535, 0, 0, 1000, 2000, 3000)) * 2
    assert np.asarray(decode(png((2, 2, 16, 2), rows)))[0].tolist() == [[255, 0, 0], [3, 7, 11]]
    keyed = png((2, 2, 16, 2), rows, key=struct.pack(">3H", 1000, 2000, 3000))
    for read in (decode, check):
        with pytest.raises(ImageRejected) as caught:
            read(keyed)
        assert caught.value.code == "unsupported_format"


@pytest.mark.parametrize(
    ("colour", "values", "pixel"),
    [
        (4, (0x4000, 0x8000), (159, 159, 159)),
        (4, (0x4000, 0xFFFF), (64, 64, 64)),
        (4, (0x4000, 0), WHITE),
        (6, (0xFFFF, 0, 0x4000, 0xFFFF), (255, 0, 64)),
        (6, (0xFFFF, 0, 0x4000, 0), WHITE),
        (6, (0xFFFF, 0, 0, 0x8000), (255, 127, 127)),
    ],
)
def test_16_bit_with_alpha_is_composited_on_white(
    colour: int, values: tuple[int, ...], pixel: tuple[int, ...]
) -> None:
    row = b"\0" + struct.pack(f">{len(values)}H", *values) * 3
    picture = decode(png((3, 2, 16, colour), row * 2))
    assert picture.mode == "RGB" and picture.size == (3, 2)
    assert np.abs(np.asarray(picture).astype(int) - pixel).max() <= 1


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
    data = bytearray(encoded(two_halves(), "PNG"))
    data[position] ^= 0xFF
    with pytest.raises(ImageRejected) as caught:
        decode(bytes(data))
    assert caught.value.code in {"corrupt", "truncated", "decompression_bomb"}


def _jpeg_that_claims(width: int, height: int) -> bytes:
    data = encoded(two_halves(), "JPEG")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 5] + struct.pack(">HH", height, width) + data[frame + 9 :]


def _webp_that_claims(width: int, height: int) -> bytes:
    canvas = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + canvas
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("side", [9_460, 16_000, 60_000])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_bomb_is_an_error_before_any_pixel_is_decoded(
    kind: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda _: pytest.fail("pixels were decoded"))
    bombs = {
        "JPEG": lambda: _jpeg_that_claims(side, side),
        "PNG": lambda: png((side, side, 8, 2), b""),
        "WEBP": lambda: _webp_that_claims(side, side),
    }
    with pytest.raises(ImageRejected) as caught:
        decode(bombs[kind]())
    assert caught.value.code in (
        {"decompression_bomb"} if kind != "WEBP" else {"decompression_bomb", "corrupt"}
    )


def test_the_largest_picture_is_the_one_where_pillow_begins_to_warn() -> None:
    assert decoding.MAX_PIXELS == Image.MAX_IMAGE_PIXELS


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
        (encoded(two_halves(), "GIF"), "unsupported_format"),
        (encoded(two_halves(), "BMP"), "unsupported_format"),
        (encoded(two_halves(), "TIFF"), "unsupported_format"),
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
        path.write_bytes(encoded(two_halves(), kind))
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
        decode(encoded(two_halves(), "JPEG"))


def test_pillow_may_not_be_told_to_accept_truncated_files(
    monkeypatch: pytest.MonkeyPatch, jpeg: Callable[..., bytes]
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(DatasetError, match="LOAD_TRUNCATED_IMAGES"):
        decode(jpeg())


def with_text(keyword: str, text: str, mode: str) -> bytes:
    notes = PngImagePlugin.PngInfo()
    notes.add_itxt(keyword, text)
    return encoded(Image.new(mode, (5, 4)), "PNG", pnginfo=notes)


MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
ODD = {
    **{f"{mode}": encoded(Image.new(mode, (5, 4)), "PNG") for mode in MODES},
    **{f"{mode}, note exif": with_text("exif", "x", mode) for mode in MODES},
    **{f"{mode}, note transparency": with_text("transparency", "x", mode) for mode in MODES},
    "16-bit key, 16-bit colour": png((2, 2, 16, 2), bytes(26), key=b"\1\0\0\0\0\0"),
    "16-bit key, 8-bit colour": png((2, 2, 8, 2), bytes(14), key=b"\1\0\0\0\0\0"),
    "16-bit key, 8-bit grey": png((2, 2, 8, 0), bytes(6), key=b"\1\0"),
    "key of a byte": png((2, 2, 8, 0), bytes(6), key=b"\1"),
    "grey 16-bit with key": grey_16_bit([[1, 2], [3, 4]], key=b"\0\1"),
}


@pytest.mark.parametrize("name", ODD)
def test_check_refuses_what_decode_refuses_without_a_picture_of_one_pixel_more(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(read: Callable[[bytes], object]) -> tuple[str, str] | None:
        try:
            read(ODD[name])
        except ImageRejected as error:
            return error.code, str(error.found)
        return None

    decoded = outcome(decode)
    converted: list[tuple[int, int]] = []
    really = decoding._as_rgb
    monkeypatch.setattr(
        decoding, "_as_rgb", lambda picture: converted.append(picture.size) or really(picture)
    )
    assert outcome(check) == decoded
    assert set(converted) <= {(1, 1)}
    assert converted or decoded, "an accepted picture has passed all that can refuse it"


def test_pixels_under_way_are_bounded_over_all_threads() -> None:
    budget, held, most, lock = decoding._PixelBudget(10), 0, 0, threading.Lock()
    full = threading.Barrier(2)

    def work(number: int) -> None:
        nonlocal held, most
        with budget.taken(5):
            with lock:
                held += 5
                most = max(most, held)
            # Two at a time get here, and the next two only when they have left.
            full.wait(timeout=60)
            with lock:
                held -= 5

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 10


@pytest.mark.parametrize("read", [check, decode])
def test_every_picture_counts_with_its_pixels_and_gives_them_back(
    read: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    class Watched(decoding._PixelBudget):
        @contextmanager
        def taken(self, pixels: int) -> Iterator[None]:
            taken.append(pixels)
            with super().taken(pixels):
                yield

    # Room for one picture only: a second read would wait for ever if a refusal kept what it took.
    monkeypatch.setattr(decoding, "_PIXELS", Watched(5 * 4))
    read(ODD["RGBA"])
    with pytest.raises(ImageRejected):
        read(ODD["RGB, note exif"])
    read(ODD["RGBA"])
    assert taken == [20] * 3
