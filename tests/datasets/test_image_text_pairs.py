"""The readers of image-text pairs, on folders in the foreign tools' own layouts: COCO's, and those of img2dataset.

The tars are written by webdataset, whose `TarWriter` img2dataset writes its own with. The tables beside them have the
columns of `writer.py` and `downloader.py`, the statistics those of `logger.py` (github.com/rom1504/img2dataset).
"""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import webdataset
from pyarrow import parquet
from written_pictures import encoded, noise

from plumbline.datasets.coco import COCOCaptions
from plumbline.datasets.img2dataset import Img2Dataset
from plumbline.datasets.ingestion import folder_digest, ingest
from plumbline.datasets.records import Ingested
from plumbline.datasets.sources import obtaining
from plumbline.errors import DatasetError
from plumbline.images import tars
from plumbline.images.decoding import read_recorded_image

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("caption", "url", "key", "status", "error_message")]
    + [(name, pa.int32()) for name in ("width", "height", "original_width", "original_height")]
    + [("sha256", pa.string())]
)


def jpeg(seed: int) -> bytes:
    return encoded(noise(seed), "JPEG")


def meta(number: int, status: str = "success", **more: Any) -> dict[str, Any]:
    got = status == "success"
    sizes = dict.fromkeys(("width", "height", "original_width", "original_height"), 16 if got else None)
    error = None if got else "HTTP Error 404: Not Found"
    about = {"caption": f"a person, {number}", "url": f"https://images.example/{number}", "key": f"{number:09}"}
    return {**about, "status": status, "error_message": error, **sizes, "sha256": None, **more}


def write_shard(
    root: Path,
    metas: Sequence[Mapping[str, Any]],
    *,
    pictures: Mapping[str, bytes] | None = None,
    form: str = "webdataset",
) -> None:
    """Write the shard `00000` in an output format of img2dataset, as its writers do."""
    root.mkdir(parents=True, exist_ok=True)
    got = [m for m in metas if m["status"] == "success"]
    pictures = {m["key"]: jpeg(int(m["key"])) for m in got} | dict(pictures or {})
    if form == "webdataset":
        with webdataset.TarWriter(str(root / "00000.tar")) as writer:
            for m in got:
                about = json.dumps(m, indent=4)
                writer.write({"__key__": m["key"], "jpg": pictures[m["key"]], "txt": m["caption"] or "", "json": about})
    if form == "files":
        (root / "00000").mkdir()
        for m in got:
            (root / f"00000/{m['key']}.jpg").write_bytes(pictures[m["key"]])
            (root / f"00000/{m['key']}.txt").write_text(m["caption"] or "")
            (root / f"00000/{m['key']}.json").write_text(json.dumps(m, indent=4))
    schema, rows = SCHEMA, [dict(m) for m in metas]
    if form == "parquet":
        schema = SCHEMA.append(pa.field("jpg", pa.binary())).append(pa.field("txt", pa.string()))
        rows = [{**m, "jpg": pictures.get(m["key"]), "txt": m["caption"]} for m in rows]
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), root / "00000.parquet")
    stats = {"count": len(metas), "successes": len(got), "failed_to_download": len(metas) - len(got)}
    (root / "00000_stats.json").write_text(json.dumps({**stats, "failed_to_resize": 0, "duration": 0.1}, indent=4))


def read(root: Path) -> Ingested:
    ingested = ingest(Img2Dataset(), root, dataset="pairs", workers=1)
    assert ingested.records.height + ingested.quarantine.height == ingested.listed
    return ingested


def codes(ingested: Ingested) -> list[tuple[str, str]]:
    return ingested.quarantine.select("path", "code").rows()


METAS = [meta(0), meta(1, "failed_to_download"), meta(2), meta(3, "failed_to_resize"), meta(4)]


@pytest.mark.parametrize(
    ("form", "paths"),
    [
        ("webdataset", [f"00000.tar/{number:09}.jpg" for number in (0, 2, 4)]),
        ("files", [f"00000/{number:09}.jpg" for number in (0, 2, 4)]),
        ("parquet", [f"00000.parquet/{row}" for row in (0, 2, 4)]),
    ],
)
def test_every_output_format_gives_the_same_pairs_and_says_what_was_not_got(tmp_path, form, paths):
    write_shard(tmp_path, METAS, form=form)
    ingested = read(tmp_path)
    assert ingested.records["path"].to_list() == paths
    assert ingested.records["caption"].to_list() == [m["caption"] for m in METAS if m["status"] == "success"]
    told = ingested.quarantine.select("code", "line", "found").rows()
    assert [code for code, _, _ in told] == ["not_downloaded"] * 2 and [line for _, line, _ in told] == [2, 4]
    assert told[0][2] == "failed_to_download: HTTP Error 404: Not Found: https://images.example/1"


def rewritten(root: Path, change: Any) -> None:
    """Write the tar again with its members changed."""
    with tarfile.open(root / "00000.tar") as old:
        members = [(info.name, old.extractfile(info).read()) for info in old]  # type: ignore[union-attr]
    with tarfile.open(root / "00000.tar", "w") as new:
        for name, data in change(members):
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))


def link(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info


def without(name: str) -> Any:
    return lambda members: [m for m in members if m[0] != name]


def with_text(name: str, data: bytes) -> Any:
    return lambda members: [(n, data if n == name else d) for n, d in members]


def more(*members: tuple[Any, bytes]) -> Any:
    return lambda known: [*known, *members]


TOTALS = ("00000_stats.json", "contradicting_totals")
FIRST, THIRD = "00000.tar/000000000.jpg", "00000.tar/000000002.jpg"
BAD_TARS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "no caption anywhere": (
        lambda known: [(n, b"{}" if n.endswith("0.json") else b" " if n.endswith("0.txt") else d) for n, d in known],
        [],  # the table has it
    ),
    "no picture": (without("000000000.jpg"), [("00000.tar/000000000", "missing_file"), TOTALS]),
    "undecodable picture": (with_text("000000000.jpg", b"no picture"), [(FIRST, "not_an_image")]),
    "caption that is not UTF-8": (with_text("000000000.txt", b"\xff\xfe"), [(FIRST, "wrong_encoding")]),
    "caption that would obey a terminal": (with_text("000000000.txt", b"a \x1b[2J"), [(FIRST, "unsafe_caption")]),
    "caption without end": (with_text("000000000.txt", b"a" * 70_000), [(FIRST, "file_too_large")]),
    "key that came before": (
        more(("000000000.jpg", b"other"), ("000000000.txt", b"other")), [("00000.tar/000000000", "duplicate_key")]
    ),
    "two members of one name": (
        lambda known: [known[0], *known], [("00000.tar/000000000", "duplicate_key"), TOTALS]
    ),
    "name that leads out": (
        more(("../x.jpg", jpeg(9)), ("../x.txt", b"out")), [("00000.tar/../x.jpg", "path_outside_root"), TOTALS]
    ),
    "absolute name": (more(("/x.jpg", jpeg(9)), ("/x.txt", b"out")), [("00000.tar//x.jpg", "missing_file"), TOTALS]),
    "name without a key": (more((".jpg", jpeg(9))), [("00000.tar/.jpg", "malformed_name")]),
    "link": (more((link("000000009.jpg"), b"")), [("00000.tar/000000009.jpg", "not_a_file")]),
    "picture that the table calls failed": (
        more(("000000001.jpg", jpeg(9)), ("000000001.txt", b"a person")),
        [("00000.tar/000000001.jpg", "contradicting_status")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_TARS)
def test_what_is_wrong_in_a_tar_is_quarantined_and_stops_nothing(tmp_path, case):
    change, expected = BAD_TARS[case]
    write_shard(tmp_path, METAS)
    rewritten(tmp_path, change)
    ingested = read(tmp_path)
    told = [row for row in codes(ingested) if row[1] != "not_downloaded"]
    assert sorted(told) == sorted(expected)
    assert set(ingested.records["path"]) >= {THIRD, "00000.tar/000000004.jpg"}


@pytest.mark.parametrize("size", ["-5", "-4608", "-99999999999999999999999999"])
@pytest.mark.parametrize("name", ["b.txt", "b.png"])
def test_a_member_of_less_than_no_bytes_ends_the_tar_and_not_the_audit(tmp_path, size, name):
    sound = [("a.png", encoded(noise(1), "PNG")), ("a.txt", b"a person")]
    with tarfile.open(tmp_path / "00000.tar", "w", format=tarfile.PAX_FORMAT) as packed:
        for member, data, says in (*((*each, {}) for each in sound), (name, b"", {"size": size})):
            info = tarfile.TarInfo(member)
            info.size, info.pax_headers = len(data), says
            packed.addfile(info, io.BytesIO(data))
    ingested = read(tmp_path)
    assert ingested.records["path"].to_list() == ["00000.tar/a.png"]
    assert ("00000.tar", "truncated") in codes(ingested)


@pytest.mark.parametrize("key", ["k" * 300, "k/" * 3000])
def test_a_key_that_is_longer_than_any_file_name_is_refused_alone(tmp_path, key):
    write_shard(tmp_path, METAS, form="files")
    table = pl.read_parquet(tmp_path / "00000.parquet")
    long = table.head(1).with_columns(key=pl.lit(key))
    pl.concat([table, long]).write_parquet(tmp_path / "00000.parquet")
    ingested = read(tmp_path)
    assert ingested.records.height == 3
    assert any(path.startswith("00000/k") for path, _ in codes(ingested))


def test_a_name_of_very_many_parts_is_refused_in_no_time(tmp_path):
    write_shard(tmp_path, METAS)
    rewritten(tmp_path, more(("a/" * 30_000 + "x", b"")))
    began = time.monotonic()
    assert "malformed_name" in {code for _, code in codes(read(tmp_path))}
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("end", [0.3, 0.6])
def test_a_cut_tar_gives_what_stands_before_the_cut_and_counts_what_does_not(tmp_path, end):
    write_shard(tmp_path, METAS)
    data = (tmp_path / "00000.tar").read_bytes()
    (tmp_path / "00000.tar").write_bytes(data[: int(len(data) * end)])
    ingested = read(tmp_path)
    told = [code for _, code in codes(ingested)]
    assert told.count("truncated") >= 1 and told.count("not_downloaded") == 2
    # Each of the five addresses is accepted or refused once; the cut itself, and perhaps the totals, are told beside.
    of_addresses = [path for path, _ in codes(ingested) if path not in ("00000.tar", "00000_stats.json")]
    assert ingested.records.height + len(of_addresses) == len(METAS)


def test_a_tar_of_another_writer_needs_no_table_and_its_json_may_hold_the_caption(tmp_path):
    with webdataset.TarWriter(str(tmp_path / "people-0001.tar")) as writer:
        writer.write(
            {"__key__": "a/b", "png": encoded(noise(1), "PNG"), "json": json.dumps({"caption": " a\nperson "})}
        )
        writer.write({"__key__": "a/c", "png": encoded(noise(2), "PNG")})
    ingested = read(tmp_path)
    assert ingested.records.select("path", "caption").rows() == [("people-0001.tar/a/b.png", "a person")]
    assert codes(ingested) == [("people-0001.tar/a/c.png", "missing_caption")]


def test_a_key_twice_in_the_table_and_a_success_that_is_not_there_are_told(tmp_path):
    write_shard(tmp_path, METAS)
    rows = [*METAS, meta(0, caption="again"), meta(7)]
    parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "00000.parquet")
    told = [row for row in codes(read(tmp_path)) if row[1] != "not_downloaded"]
    assert told == [("00000.tar/000000000", "duplicate_key"), ("00000.tar/000000007", "missing_file")]


def test_a_tar_is_never_held_in_memory_and_a_changed_caption_changes_the_digest(tmp_path, monkeypatch):
    write_shard(tmp_path, METAS, pictures={"000000002": jpeg(2) + bytes(4 << 20)})
    largest = 0
    really = tars.os.pread

    def counted(file: int, size: int, offset: int) -> bytes:
        nonlocal largest
        largest = max(largest, size)
        return really(file, size, offset)

    monkeypatch.setattr(tars.os, "pread", counted)
    before = folder_digest(Img2Dataset(), tmp_path)
    assert 4 << 20 < largest < (4 << 20) + 10_000 < (tmp_path / "00000.tar").stat().st_size
    rewritten(tmp_path, with_text("000000000.txt", b"another person"))
    assert folder_digest(Img2Dataset(), tmp_path) != before


@pytest.mark.parametrize(
    ("files", "words"),
    [({}, "no shard"), ({"00000.parquet": None}, "pictures that are not here[\\s\\S]*run img2dataset")],
)
def test_a_folder_that_img2dataset_did_not_write_is_an_error(tmp_path, files, words):
    for name in files:
        parquet.write_table(pa.Table.from_pylist([meta(0)], schema=SCHEMA), tmp_path / name)
    with pytest.raises(DatasetError, match=words):
        read(tmp_path)


# --- COCO


def coco(
    root: Path, images: list[Any], annotations: list[Any], *, below: str = "annotations", part: str = "val2017"
) -> Path:
    (root / below).mkdir(parents=True, exist_ok=True)
    (root / part).mkdir(exist_ok=True)
    content = {"info": {"year": 2017}, "licenses": [{"id": 3}], "images": images, "annotations": annotations}
    (root / below / f"captions_{part}.json").write_text(json.dumps(content))
    return root


def image(number: int, **more: Any) -> dict[str, Any]:
    about = {"license": 3, "height": 12, "width": 16, "id": number}
    return {**about, "file_name": f"{number:012}.jpg", "flickr_url": "https://images.example", **more}


def caption(number: int, text: Any, *, of: Any) -> dict[str, Any]:
    return {"image_id": of, "id": number, "caption": text}


def test_coco_gives_a_row_for_each_caption_and_counts_what_has_none(tmp_path):
    images = [image(1), image(2), image(2), image(3), "no image", image(4), image(5, file_name="../../out.jpg")]
    captions = [
        caption(10, "A person rides a horse. ", of=1), caption(11, "Someone on a horse.", of=1),
        caption(12, None, of=2),
        caption(13, "Someone on a horse.", of=1), caption(14, "A ghost.", of=99), caption(15, "No file.", of=4),
        caption(16, "Out.", of=5),
    ]  # fmt: skip
    root = coco(tmp_path, images, captions)
    for number in (1, 2, 3):
        (root / f"val2017/{number:012}.jpg").write_bytes(jpeg(number))
    ingested = ingest(COCOCaptions(), root, dataset="coco")
    assert ingested.records.select("path", "split", "caption").rows() == [
        ("val2017/000000000001.jpg", "val", "A person rides a horse."),
        ("val2017/000000000001.jpg", "val", "Someone on a horse."),
    ]
    assert sorted(ingested.quarantine["code"]) == [
        "duplicate_key", "duplicate_row", "malformed_row", "missing_caption", "missing_caption", "missing_file",
        "path_outside_root", "unknown_image",
    ]  # fmt: skip
    assert ingested.listed == 10


def test_cocos_parts_are_splits_wherever_the_json_lies(tmp_path):
    for part, below in (("train2014", ""), ("val2014", "")):
        root = coco(tmp_path, [image(1)], [caption(1, f"A person, {part}.", of=1)], below=below, part=part)
        (root / f"{part}/{1:012}.jpg").write_bytes(jpeg(len(part)))
    assert ingest(COCOCaptions(), tmp_path, dataset="coco").records["split"].to_list() == ["train", "val"]


@pytest.mark.parametrize("content", ["{", "[]", '{"images": [], "annotations": 3}', "[" * 100_000])
def test_a_file_that_is_no_captions_is_an_error_with_its_name(tmp_path, content):
    coco(tmp_path, [], [])
    (tmp_path / "annotations/captions_val2017.json").write_text(content)
    with pytest.raises(DatasetError, match=r"captions_val2017\.json[\s\S]*`annotations`"):
        ingest(COCOCaptions(), tmp_path, dataset="coco")


@pytest.mark.parametrize(
    ("reader", "words"), [("coco", ["CC BY 4.0", "captions_train2017"]), ("img2dataset", ["LAION", "2023"])]
)
def test_fetch_says_licence_and_steps(reader, words):
    told = obtaining(reader).instructions("pairs")
    assert all(word in told for word in words) and "plumbline fetch pairs --archive" in told


def test_a_picture_in_a_tar_is_the_records_and_not_another(tmp_path):
    write_shard(tmp_path, METAS)
    records = read(tmp_path).records
    for path, image_id in records.select("path", "image_id").iter_rows():
        assert read_recorded_image(tmp_path / path, image_id) == jpeg(int(Path(path).stem))
    assert records.select(pl.col("image_id").n_unique()).item() == 3
