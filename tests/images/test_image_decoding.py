"""Decoding: right colours and the right side up, check that agrees with it, and the pixels under way at once."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from PIL.PngImagePlugin import PngImageFile
from written_pictures import BLUE, RED, WHITE, encoded, grey_16_bit, halves, png

from plumbline.errors import ImageRejected
from plumbline.images import decoding
from plumbline.images import decoding as upright_rgb
from plumbline.images.decoding import check, decode


def assert_halves(picture: Image.Image, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    assert picture.mode == "RGB" and picture.size == (32, 16)
    pixels = np.asarray(picture).astype(int)
    assert np.abs(pixels[8, 4] - left).max() <= 3
    assert np.abs(pixels[8, 27] - right).max() <= 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("options", [{}, {"quality": 95, "progressive": True, "lossless": True}])
def test_accepted_formats_keep_their_colours(kind: str, options: dict[str, object]) -> None:
    assert_halves(decode(encoded(halves(), kind, **options)), RED, BLUE)


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
    upright = halves()
    upright.paste((0, 255, 0), (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True}
    decoded = decode(encoded(upright.transpose(undo), kind, exif=exif, **options))
    assert np.abs(np.asarray(decoded).astype(int) - np.asarray(upright)).max() <= 5
    assert not decoded.getexif(), "a second reader would turn it again"


@pytest.mark.parametrize("exif", [b"Exif\0\0not a tiff header", b"Exif\0\0II*\0\xff\xff\xff\x7f", b"Exif\0\0"])
def test_a_damaged_exif_block_does_not_cost_the_picture(exif: bytes) -> None:
    assert_halves(decode(encoded(halves(), "JPEG", quality=95, exif=exif)), RED, BLUE)


def test_cmyk_becomes_rgb() -> None:
    assert_halves(decode(encoded(halves().convert("CMYK"), "JPEG", quality=95)), RED, BLUE)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_alpha_is_composited_on_white(kind: str) -> None:
    layer = halves().convert("RGBA")
    layer.paste((0, 0, 255, 0), (16, 0, 32, 16))
    assert_halves(decode(encoded(layer, kind, lossless=True)), RED, WHITE)


def test_half_transparent_grey_is_half_way_to_white() -> None:
    picture = decode(encoded(Image.new("LA", (32, 16), (0, 128)), "PNG"))
    assert_halves(picture, (127, 127, 127), (127, 127, 127))


def test_palette_with_and_without_a_transparent_entry() -> None:
    palette = halves().quantize(4)
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
def test_16_bit_with_alpha_is_composited_on_white(colour: int, values: tuple[int, ...], pixel: tuple[int, ...]) -> None:
    row = b"\0" + struct.pack(f">{len(values)}H", *values) * 3
    picture = decode(png((3, 2, 16, colour), row * 2))
    assert picture.mode == "RGB" and picture.size == (3, 2)
    assert np.abs(np.asarray(picture).astype(int) - pixel).max() <= 1


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
    really = upright_rgb._as_rgb
    monkeypatch.setattr(upright_rgb, "_as_rgb", lambda picture: converted.append(picture.size) or really(picture))
    assert outcome(check) == decoded
    assert set(converted) <= {(1, 1)}
    assert converted or decoded, "an accepted picture has passed all that can refuse it"


@pytest.mark.parametrize("read", [check, decode])
def test_two_large_pictures_at_most_are_decoded_at_once(
    read: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_LARGE_PIXELS", 5 * 4 - 1)
    under_way, most, lock, load = 0, 0, threading.Lock(), PngImageFile.load

    def watched(image: PngImageFile) -> object:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        if most < 2:
            second.wait(timeout=60)
        second.set()
        loaded = load(image)
        with lock:
            under_way -= 1
        return loaded

    second = threading.Event()
    monkeypatch.setattr(PngImageFile, "load", watched)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(read, [ODD["RGBA"]] * 12))
    assert most == 2


@pytest.mark.parametrize("read", [check, decode])
def test_a_refused_picture_makes_room_for_the_next(
    read: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "_LARGE_PIXELS", 0)
    # Room for one picture only: a second read would wait for ever if a refusal kept what it took.
    monkeypatch.setattr(decoding, "_LARGE", threading.BoundedSemaphore(1))
    read(ODD["RGBA"])
    with pytest.raises(ImageRejected):
        read(ODD["RGB, note exif"])
    read(ODD["RGBA"])
