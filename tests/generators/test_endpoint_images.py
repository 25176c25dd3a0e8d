"""Images as endpoints get them: the file's own bytes where every decoder sees the same in them, else the pixels."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from plumbline.digests import digest_bytes
from plumbline.errors import GenerationError
from plumbline.generators.endpoint import LONGEST_SIDE, MOST_ORIGINAL_BYTES, image_url
from plumbline.images import decoding
from plumbline.images.decoding import decode


def gradient(width=24, height=16, mode="RGB"):
    rng = np.random.default_rng(5)
    return Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).convert(mode)


def stored(folder: Path, picture: Image.Image, name: str, **how: object) -> tuple[Path, str]:
    path = folder / name
    picture.save(path, **how)
    return path, digest_bytes(path.read_bytes())


def received(url: str) -> tuple[str, bytes]:
    head, _, data = url.partition(";base64,")
    return head.removeprefix("data:"), base64.b64decode(data, validate=True)


@pytest.mark.parametrize(
    ("name", "media", "mode"),
    [
        ("a.jpg", "image/jpeg", "RGB"),
        ("a.jpeg", "image/jpeg", "L"),
        ("a.png", "image/png", "RGB"),
        ("a.webp", "image/webp", "RGB"),
    ],
)
def test_plain_files_go_as_they_are(tmp_path, name, media, mode):
    path, image_id = stored(tmp_path, gradient(mode=mode), name)
    assert received(image_url(path, image_id)) == (media, path.read_bytes())


def test_a_picture_that_lies_on_its_side_goes_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path, image_id = stored(tmp_path, gradient(), "turned.jpg", exif=exif)
    media, data = received(image_url(path, image_id))
    seen = Image.open(io.BytesIO(data))
    assert media == "image/png" and seen.size == (16, 24) and not seen.getexif()
    assert np.array_equal(seen, decode(path))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "CMYK", "I;16"])
def test_what_decoders_differ_in_goes_as_plumbline_sees_it(tmp_path, mode):
    if mode == "I;16":
        picture = Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20) * 100)
    else:
        picture = gradient().convert("RGBA")
        picture.putalpha(90)
        picture = picture.convert(mode)
    path, image_id = stored(tmp_path, picture, "odd.jpg" if mode == "CMYK" else "odd.png")
    media, data = received(image_url(path, image_id))
    assert media == "image/png"
    assert np.array_equal(Image.open(io.BytesIO(data)), decode(path))


def test_a_large_file_goes_smaller(tmp_path):
    noise = np.random.default_rng(1).integers(0, 255, (700, 2400, 3), dtype=np.uint8)
    path, image_id = stored(tmp_path, Image.fromarray(noise), "large.png", compress_level=1)
    assert path.stat().st_size > MOST_ORIGINAL_BYTES
    media, data = received(image_url(path, image_id))
    assert media == "image/jpeg" and len(data) < path.stat().st_size / 1.5
    assert Image.open(io.BytesIO(data)).size == (LONGEST_SIDE, round(700 * LONGEST_SIDE / 2400))


def test_a_large_file_of_a_simple_picture_keeps_its_pixels(tmp_path):
    plain = Image.new("RGB", (1500, 1000), "teal")
    path, image_id = stored(tmp_path, plain, "simple.png", compress_level=0)
    assert path.stat().st_size > MOST_ORIGINAL_BYTES
    media, data = received(image_url(path, image_id))
    assert media == "image/png" and Image.open(io.BytesIO(data)).size == (1500, 1000)


def test_another_file_than_the_dataset_had(tmp_path):
    path, image_id = stored(tmp_path, gradient(), "a.png")
    stored(tmp_path, gradient(20, 20), "a.png")
    with pytest.raises(GenerationError, match="another than when its dataset was read") as caught:
        image_url(path, image_id)
    assert str(path) in str(caught.value) and image_id in str(caught.value)


def test_an_image_is_read_once(tmp_path, monkeypatch):
    path, image_id = stored(tmp_path, gradient(mode="RGBA"), "a.png")
    opened = []
    read = decoding.read_image_file
    monkeypatch.setattr(decoding, "read_image_file", lambda path: opened.append(path) or read(path))
    assert np.array_equal(Image.open(io.BytesIO(received(image_url(path, image_id))[1])), decode(path))
    assert opened == [path, path], "once for the address, once for the picture that it is compared with"


def test_an_extension_that_its_content_contradicts_is_refused_as_when_the_dataset_was_read(tmp_path):
    path, image_id = stored(tmp_path, gradient(), "a.png")
    path = path.rename(tmp_path / "a.jpg")
    with pytest.raises(GenerationError, match="wrong_extension"):
        image_url(path, image_id)


def test_files_that_are_gone_or_broken(tmp_path):
    with pytest.raises(GenerationError, match="cannot be sent") as caught:
        image_url(tmp_path / "gone.png", "0" * 64)
    assert "missing_file" in str(caught.value)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n half")
    with pytest.raises(GenerationError, match="truncated"):
        image_url(broken, digest_bytes(broken.read_bytes()))
