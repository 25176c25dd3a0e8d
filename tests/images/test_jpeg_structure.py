"""The structural check of JPEG files: whatever it accepts, the decoder accepts too."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageFile

from plumbline.errors import ImageRejected
from plumbline.images.decoding import check, decode, plain_jpeg_size

END = b"\xff\xd9"
PLAIN = {
    "4:2:0": {"subsampling": 2},
    "4:2:2": {"subsampling": 1},
    "4:4:4": {"subsampling": 0, "quality": 95},
    "optimised": {"optimize": True, "quality": 60},
    "RGB": {"keep_rgb": True},
    "restart by block": {"restart_marker_blocks": 1},
    "restart by row": {"restart_marker_rows": 1, "subsampling": 0},
    "EXIF, ICC, comment": {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0", "icc_profile": b"p" * 300, "comment": b"c"},
    "rough": {"quality": 2},
}
OTHER = {"progressive": {"progressive": True}, "progressive, 4:4:4": {"progressive": True, "subsampling": 0}}


def picture(side: tuple[int, int] = (29, 43), mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(11).integers(0, 256, (*side, 3), dtype=np.uint8)
    return Image.fromarray(noise).convert(mode)


def encoded(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return buffer.getvalue()


def plain_files() -> dict[str, bytes]:
    files = {name: encoded(picture(), **options) for name, options in PLAIN.items()}
    files |= {f"grey, {name}": encoded(picture(mode="L"), **PLAIN[name]) for name in ("optimised", "restart by block")}
    return files | {"grey": encoded(picture(mode="L")), "8 × 8": encoded(picture((8, 8)))}


def other_files() -> dict[str, bytes]:
    files = {name: encoded(picture(), **options) for name, options in OTHER.items()}
    return files | {"CMYK": encoded(picture(mode="CMYK"))}


def segments(data: bytes) -> list[bytes]:
    """Cut a sound file into SOI, its segments, and the scan with its head and end."""
    pieces, position = [data[:2]], 2
    while data[position + 1] != 0xDA:
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4])
        pieces.append(data[position:end])
        position = end
    return [*pieces, data[position:]]


def of_kind(data: bytes, kind: int) -> int:
    """Return where the first segment of a kind begins, its mark included."""
    pieces = segments(data)
    return sum(map(len, pieces[: next(n for n, piece in enumerate(pieces) if piece[1] == kind)]))


Mutation = Callable[[np.random.Generator, bytes, bytes], bytes]
MUTATIONS: list[Mutation] = []
VALUES = (0x00, 0x01, 0x02, 0x03, 0x04, 0x08, 0x10, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x24, 0x41, 0x42, 0x3F, 0x7F,
          0x80, 0xC0, 0xC1, 0xC2, 0xC4, 0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xE0, 0xEE, 0xFE, 0xFF)  # fmt: skip


def mutation(work: Mutation) -> Mutation:
    MUTATIONS.append(work)
    return work


@mutation
def unchanged(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return data


@mutation
def truncated(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return data[: rng.integers(len(data))] + (END if rng.random() < 0.5 else b"")


@mutation
def bytes_changed(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return with_bytes(rng, data, min(2, len(data)), len(data))


@mutation
def header_bytes_changed(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return with_bytes(rng, data, 2, len(data) - len(segments(data)[-1]) + 14)


@mutation
def frame_changed(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces = segments(data)
    start = next(n for n, piece in enumerate(pieces) if piece[1] in (0xC0, 0xC1, 0xC2))
    pieces[start] = with_bytes(rng, pieces[start], 1, len(pieces[start]))
    return b"".join(pieces)


@mutation
def scan_head_changed(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return with_bytes(rng, data, len(data) - len(segments(data)[-1]), len(data) - len(segments(data)[-1]) + 14)


@mutation
def huffman_changed(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces = segments(data)
    chosen = rng.choice([n for n, piece in enumerate(pieces) if piece[1] == 0xC4])
    pieces[chosen] = with_bytes(rng, pieces[chosen], 2, min(24, len(pieces[chosen])))
    return b"".join(pieces)


@mutation
def segment_dropped(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces = segments(data)
    del pieces[rng.integers(1, len(pieces))]
    return b"".join(pieces)


@mutation
def segment_repeated_or_moved(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces = segments(data)
    taken = pieces[rng.integers(1, len(pieces) - 1)]
    if rng.random() < 0.5:
        pieces.remove(taken)
    pieces.insert(rng.integers(1, len(pieces) + 1), taken)
    return b"".join(pieces)


@mutation
def segment_of_another(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces, others = segments(data), segments(other)
    pieces.insert(rng.integers(1, len(pieces)), others[rng.integers(1, len(others))])
    return b"".join(pieces)


@mutation
def spliced(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces, others = segments(data), segments(other)
    cut = rng.integers(1, min(len(pieces), len(others)))
    return b"".join([*pieces[:cut], *others[cut:]])


@mutation
def mark_inserted(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    at = rng.integers(len(data) - len(segments(data)[-1]) + 14, len(data) + 1)
    return data[:at] + b"\xff" + bytes([rng.choice(VALUES)]) + data[at:]


@mutation
def bytes_inserted_or_removed(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    at, length = rng.integers(2, len(data)), rng.integers(1, 30)
    return data[:at] + rng.bytes(length) + data[at:] if rng.random() < 0.5 else data[:at] + data[at + length :]


@mutation
def application_inserted(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    names = [
        b"JFIF\0",
        b"JFXX\0",
        b"Exif\0\0",
        b"ICC_PROFILE\0",
        b"Photoshop 3.0\0",
        b"8BIM",
        b"Adobe",
        b"MPF\0",
        b"FPXR\0",
    ]
    body = b"".join(names[n] for n in rng.integers(0, len(names), rng.integers(1, 3))) + rng.bytes(rng.integers(20))
    pieces = segments(data)
    kind = bytes([0xFF, rng.choice([0xE0, 0xE1, 0xE2, 0xED, 0xEE, 0xEF, 0xFE])])
    pieces.insert(rng.integers(1, len(pieces)), kind + (len(body) + 2).to_bytes(2) + body)
    return b"".join(pieces)


@mutation
def restarts_announced(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    pieces = segments(data)
    pieces.insert(-1, b"\xff\xdd\0\x04" + int(rng.choice([0, 1, 2, 3, 5, 11, 12, 24, 1000])).to_bytes(2))
    return b"".join(pieces)


@mutation
def something_behind(rng: np.random.Generator, data: bytes, other: bytes) -> bytes:
    return data + [b"\0" * 9, b"\xff" * 9, b"\n", END, other, rng.bytes(7), b"\0\xff\xd8"][rng.integers(7)]


def with_bytes(rng: np.random.Generator, data: bytes, start: int, end: int) -> bytes:
    changed = bytearray(data)
    for at in rng.integers(start, max(start + 1, min(end, len(data))), rng.integers(1, 4)) if data[start:] else ():
        changed[at] = rng.choice([rng.choice(VALUES), rng.integers(256), changed[at] ^ (1 << rng.integers(8))])
    return bytes(changed)


def outcome(read: Callable[[bytes], Image.Image | None], data: bytes) -> str:
    try:
        read(data)
    except ImageRejected as error:
        return error.code
    return "accepted"


def mutated_files(count: int, seed: int) -> tuple[int, int, int]:
    """Compare both ways on mutated files; return how many were plain, sound but not plain, and refused."""
    rng = np.random.default_rng(seed)
    files = [*plain_files().values(), *plain_files().values(), *other_files().values()]
    plain = sound = refused = 0
    for _ in range(count):
        data, other = (files[n] for n in rng.integers(0, len(files), 2))
        work = MUTATIONS[rng.integers(len(MUTATIONS))]
        mutant = work(rng, data, other)
        if rng.random() < 0.2:
            mutant = bytes_changed(rng, mutant, other)
        if plain_jpeg_size(mutant):
            image = decode(mutant)
            assert image.mode == "RGB" and sorted(image.size) == sorted(plain_jpeg_size(mutant) or ()), work
            plain += 1
            continue
        full = outcome(decode, mutant)
        assert outcome(check, mutant) == full, (work, full)
        sound, refused = sound + (full == "accepted"), refused + (full != "accepted")
    return plain, sound, refused


@pytest.mark.parametrize("seed", range(4))
def test_what_the_structure_accepts_the_decoder_accepts(seed: int) -> None:
    plain, sound, refused = mutated_files(500, seed)
    assert plain > 100 and sound > 20 and refused > 100, "a fuzz that meets one outcome only proves nothing"


@pytest.mark.slow
def test_what_the_structure_accepts_the_decoder_accepts_over_many_files() -> None:
    plain, sound, refused = mutated_files(30_000, seed=99)
    assert min(plain, sound, refused) > 3_000


@pytest.mark.parametrize("name", plain_files())
def test_plain_files_of_known_tables_need_no_decoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = plain_files()[name]
    check(data, suffix=".jpg")
    monkeypatch.setattr(ImageFile.ImageFile, "__init__", lambda *_: pytest.fail("Pillow was asked"))
    assert plain_jpeg_size(data) == ((8, 8) if name == "8 × 8" else (43, 29))
    frame = of_kind(data, 0xC0)
    check(data[:2] + b"\xff\xfe\0\x04no" + data[2:], suffix=".jpg")
    check(data[: frame + 5] + b"\0\x05\0\x09" + data[frame + 9 :] + b"\0\xff\0", suffix=".jpg")


@pytest.mark.parametrize("name", other_files())
def test_other_kinds_are_left_to_the_decoder(name: str) -> None:
    data = other_files()[name]
    assert (plain_jpeg_size(data) is None) == (name != "CMYK")
    check(data)


def test_a_plain_file_cut_anywhere_is_not_plain() -> None:
    for data in plain_files().values():
        assert all(plain_jpeg_size(data[:length]) is None for length in range(len(data)))


@pytest.mark.parametrize("suffix", [".png", "", ".txt"])
def test_a_plain_file_of_another_extension_is_refused(suffix: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        check(encoded(picture()), suffix=suffix)
    assert caught.value.code == "wrong_extension"


def changed(data: bytes, kind: int, at: int, value: bytes) -> bytes:
    """Change bytes behind the length of the first segment of a kind."""
    start = of_kind(data, kind) + 4 + at
    return data[:start] + value + data[start + len(value) :]


CHANGED = {
    "12 bits": (0xC0, 0, b"\x0c"),
    "no lines": (0xC0, 1, b"\0\0"),
    "too wide": (0xC0, 3, b"\xff\xff"),
    "two components": (0xC0, 5, b"\x02"),
    "component twice": (0xC0, 9, b"\x01"),
    "sampling of 3": (0xC0, 7, b"\x31"),
    "chroma twice": (0xC0, 10, b"\x21"),
    "no such quantiser": (0xC0, 8, b"\x02"),
    "16-bit quantiser": (0xDB, 0, b"\x10"),
    "quantiser 4": (0xDB, 0, b"\x04"),
    "Huffman table 4": (0xC4, 0, b"\x04"),
    "all ones": (0xC4, 1, b"\x02"),
    "DC category 16": (0xC4, 17, b"\x10"),
    "scan of another component": (0xDA, 1, b"\x09"),
    "no such Huffman table": (0xDA, 2, b"\x02"),
    "part of the spectrum": (0xDA, 8, b"\x3e"),
    "successive bits": (0xDA, 9, b"\x10"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_changed_header_is_judged_as_the_whole_file_is(case: str) -> None:
    sound = encoded(picture())
    kind, at, value = CHANGED[case]
    if kind == 0xDA:
        start = len(sound) - len(segments(sound)[-1]) + 4 + at
        data = sound[:start] + value + sound[start + len(value) :]
    else:
        data = changed(sound, kind, at, value)
    assert data != sound
    assert outcome(check, data) == outcome(decode, data)
    assert (plain_jpeg_size(data) is not None) <= (outcome(decode, data) == "accepted")


def test_the_scan_may_hold_restarts_and_no_other_mark() -> None:
    data = encoded(picture(), restart_marker_blocks=1, subsampling=0)
    assert data.count(b"\xff\xd7") == 2 and plain_jpeg_size(data) is not None
    first = data.index(b"\xff\xd0")
    for mark in (b"\xff\xd9", b"\xff\xda", b"\xff\xc4", b"\xff\xdc", b"\xff\xff"):
        assert plain_jpeg_size(data[:first] + mark + data[first + 2 :]) is None


def test_a_scan_full_of_marks_takes_no_memory_for_each() -> None:
    data = plain_files()["4:4:4"]
    marked = data[:-2] + b"\xff\xd0" * (1 << 20) + data[-2:]
    tracemalloc.start()
    try:
        assert plain_jpeg_size(marked) == plain_jpeg_size(data)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(marked)
    finally:
        tracemalloc.stop()


def test_the_mark_of_a_scan_inside_a_table_is_left_to_the_decoder() -> None:
    sound = encoded(picture())
    for length in (b"\0\x02", b"\0\x0c"):
        data = changed(sound, 0xDB, 20, b"\xff\xda" + length)
        assert plain_jpeg_size(data) is None
        check(data, suffix=".jpg")
        headless = data[: of_kind(data, 0xC0)] + data[of_kind(data, 0xC4) :]
        assert plain_jpeg_size(headless) is None and outcome(check, headless) == outcome(decode, headless) == "corrupt"


def test_files_with_tables_of_their_own_are_judged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    noise = [Image.fromarray(rng.integers(0, 256, (9 + n, 8, 3), dtype=np.uint8)) for n in range(9)]
    files = [encoded(image, optimize=True, quality=50 + n) for n, image in enumerate(noise)]
    assert plain_jpeg_size(files[0]) == (8, 9)
    monkeypatch.setattr(ImageFile.ImageFile, "__init__", lambda *_: pytest.fail("Pillow was asked"))
    assert [plain_jpeg_size(data) for data in files] == [(8, 9 + n) for n in range(9)]


def test_a_header_too_long_to_keep_is_left_to_the_decoder() -> None:
    data = plain_files()["4:4:4"]
    segment = b"\xff\xe5\xff\xff" + bytes(65_533)
    long = data[:2] + segment * 2 + data[2:]
    assert plain_jpeg_size(long) is None
    check(long, suffix=".jpg")
