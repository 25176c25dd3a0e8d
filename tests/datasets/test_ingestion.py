"""Ingestion: nothing lost, the same order always, digests that follow content and nothing else."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.catalog.schema import QUARANTINE_SCHEMA
from plumbline.datasets import ingestion as in_order_module
from plumbline.datasets import ingestion as ingestion_module
from plumbline.datasets.fairface import FairFace
from plumbline.datasets.ingestion import dataset_digest, folder_digest, ingest
from plumbline.datasets.records import RECORD_SCHEMA, Entry, Ingested, Refusal
from plumbline.datasets.registry import MAPPED, reader_for, reader_names
from plumbline.digests import canonical_json
from plumbline.errors import ConfigError, DatasetError

LINES = [f"val/{number}.jpg,20-29,Male,Black,False" for number in range(1, 101)]


def written(fairface: Callable[..., Path], jpeg: Callable[..., bytes]) -> Path:
    """Write 100 listed images, of which every seventh is missing and every tenth repeats the one before."""
    numbers = [number for number in range(1, 101) if number % 7]
    return fairface(LINES, {f"val/{n}.jpg": jpeg(n - 1 if n % 10 == 0 else n) for n in numbers})


def test_columns_are_those_of_the_schemas(fairface: Callable[..., Path], jpeg: Callable[..., bytes]) -> None:
    ingested = ingest(reader_for("fairface"), written(fairface, jpeg), dataset="faces")
    assert dict(ingested.records.schema) == RECORD_SCHEMA
    assert dict(ingested.quarantine.schema) == QUARANTINE_SCHEMA
    assert ingested.records["image_id"].is_unique().all()
    assert ingested.records["image_id"].str.contains("^[0-9a-f]{64}$").all()


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_order_and_result_do_not_depend_on_the_threads(
    workers: int, fairface: Callable[..., Path], jpeg: Callable[..., bytes]
) -> None:
    root = written(fairface, jpeg)
    ingested = ingest(reader_for("fairface"), root, dataset="faces", workers=workers)
    present = [n for n in range(1, 101) if n % 7]
    kept = [n for n in present if not (n % 10 == 0 and n - 1 in present)]
    assert ingested.records["path"].to_list() == [f"val/{n}.jpg" for n in kept]
    assert ingested.quarantine["line"].to_list() == [n + 1 for n in range(1, 101) if n not in kept]
    assert ingested.quarantine["code"].value_counts().sort("code").rows() == [("duplicate", 8), ("missing_file", 14)]


def test_progress_ends_at_the_number_listed(fairface: Callable[..., Path], jpeg: Callable[..., bytes]) -> None:
    seen: list[tuple[int, int]] = []
    root = written(fairface, jpeg)
    ingest(reader_for("fairface"), root, dataset="faces", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (100, 100)
    assert seen == sorted(set(seen))
    assert max(after - before for (before, _), (after, _) in pairwise([(0, 100), *seen])) <= 100 // 2


def test_work_under_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ahead = 0, []

    def work(item: int) -> int:
        nonlocal begun
        begun += 1
        return item

    for taken, result in enumerate(in_order_module.in_order(work, range(5000), workers=2), 1):
        assert result == taken - 1
        ahead.append(begun - taken)
    assert len(ahead) == 5000
    assert max(ahead) <= in_order_module._CHUNK * (in_order_module._CHUNKS_AHEAD * 2 + 1)


@pytest.mark.parametrize("quick", [False, True])
def test_threads_are_used_where_items_have_to_be_waited_for(monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    monkeypatch.setattr(in_order_module, "usable_cores", lambda: 4)
    if quick:
        # However much else the machine does.
        monkeypatch.setattr(in_order_module, "_QUICK_SECONDS", 60)
    under_way, most = 0, 0
    lock = threading.Lock()

    def work(item: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.001)
        with lock:
            under_way -= 1
        return item

    assert list(in_order_module.in_order(work, range(640), workers=None)) == list(range(640))
    assert (most == 1) is quick


def test_quick_items_after_slow_ones_are_worked_through_in_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order_module, "usable_cores", lambda: 2)
    monkeypatch.setattr(in_order_module, "_CHUNKS_UNTIMED", 8)
    monkeypatch.setattr(in_order_module, "_QUICK_SECONDS", 1e-3)

    def work(item: int) -> str:
        time.sleep(0.002 if item < 256 else 0)
        return threading.current_thread().name

    names = list(in_order_module.in_order(work, range(1024), workers=None))
    assert names[0] == names[-1] == threading.current_thread().name
    assert any(name.startswith("ingest") for name in names)


def test_what_progress_raises_stops_the_run(fairface: Callable[..., Path], jpeg: Callable[..., bytes]) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(reader_for("fairface"), written(fairface, jpeg), dataset="faces", progress=stop)


LABELS = st.sampled_from(["20-29", "Male", "Black", "White", "False", "", "ä", '"', "Martian"])
FILES = st.sampled_from(["val/1.jpg", "val/2.jpg", "val/3.jpg", "val/9.jpg", "../val/1.jpg", "/val/1.jpg", "x", ""])
ROWS = st.one_of(
    st.builds(lambda file, rest: ",".join([file, *rest]).encode(), FILES, st.lists(LABELS, max_size=6)),
    FILES.map(lambda file: f"{file},20-29,Male,Black,False".encode()),
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"")),
)


@settings(max_examples=150)
@given(rows=st.lists(ROWS, min_size=1, max_size=12))
def test_accepted_and_quarantined_are_the_listed_lines_whatever_the_index_holds(
    jpeg: Callable[..., bytes], rows: list[bytes]
) -> None:
    lines = [row for row in rows if row.strip()]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "val").mkdir()
        for number, seed in ((1, 1), (2, 1), (3, 3)):
            (root / f"val/{number}.jpg").write_bytes(jpeg(seed))
        index = b"\n".join([b"file,age,gender,race,service_test", *rows])
        (root / "fairface_label_val.csv").write_bytes(index)
        if not lines:
            with pytest.raises(DatasetError):
                ingest(reader_for("fairface"), root, dataset="faces", workers=1)
            return
        ingested = ingest(reader_for("fairface"), root, dataset="faces", workers=1)
    # A quoted value may run over several lines; without a quote each line is a row.
    quoted = any(b'"' in line for line in lines)
    assert ingested.listed == len(lines) or (quoted and 0 < ingested.listed < len(lines))
    assert ingested.records.height + ingested.quarantine.height == ingested.listed
    assert ingested.quarantine.select("code", "stage", "message", "path", "line").null_count().sum_horizontal()[0] == 0


def test_accounts_that_do_not_balance_are_an_error() -> None:
    torn = Ingested(pl.DataFrame(schema=RECORD_SCHEMA), pl.DataFrame(schema=QUARANTINE_SCHEMA), pl.DataFrame(), 1, "")
    with pytest.raises(DatasetError, match="do not add up"):
        ingestion_module._require_balance(torn, "faces")


@pytest.mark.parametrize("name", [name for name in reader_names() if name not in MAPPED])
def test_a_folder_that_is_not_there_says_what_to_do(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "absent", tmp_path / "file"):
        for read in (
            lambda root=root: ingest(reader_for(name), root, dataset="d"),
            lambda root=root: folder_digest(reader_for(name), root),
        ):
            with pytest.raises(DatasetError) as caught:
                read()
            assert caught.value.hint


def test_an_unknown_reader_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="fairfaces[^$]*" + ", ".join(reader_names())):
        reader_for("fairfaces")


def test_the_dataset_digest_follows_both_tables_and_their_order(
    fairface: Callable[..., Path], jpeg: Callable[..., bytes]
) -> None:
    ingested = ingest(reader_for("fairface"), written(fairface, jpeg), dataset="faces")
    records, quarantine = ingested.records, ingested.quarantine
    digests = [
        dataset_digest(records, quarantine),
        dataset_digest(records.reverse(), quarantine),
        dataset_digest(records, quarantine.reverse()),
        dataset_digest(records.with_columns(pl.lit("woman").alias("gender")), quarantine),
        dataset_digest(records.with_columns(pl.lit("").alias("scene")), quarantine),
        dataset_digest(records, quarantine.head(0)),
    ]
    assert len(set(digests)) == len(digests)
    assert dataset_digest(records.clone(), quarantine.rechunk()) == digests[0]


def test_the_folder_digest_follows_listed_content_and_nothing_else(
    fairface: Callable[..., Path], jpeg: Callable[..., bytes]
) -> None:
    root = written(fairface, jpeg)
    reader = reader_for("fairface")
    before = folder_digest(reader, root, workers=2)
    os.utime(root / "val/1.jpg", (0, 0))
    (root / "val/unlisted.jpg").write_bytes(jpeg(999))
    assert folder_digest(reader, root, workers=1) == before
    (root / "val/7.jpg").write_bytes(jpeg(7))
    mended = folder_digest(reader, root)
    (root / "val/1.jpg").write_bytes(jpeg(500))
    changed = folder_digest(reader, root)
    fairface([*LINES[:-1], LINES[-1].replace("Male", "Female")], {})
    assert len({before, mended, changed, folder_digest(reader, root)}) == 4


def test_one_reading_gives_the_folder_digest_too(fairface: Callable[..., Path], jpeg: Callable[..., bytes]) -> None:
    """Missing, unlabelled, damaged, linked and outside files, and lines that name none, count in both alike."""
    root = written(fairface, jpeg)
    (root / "val/1.jpg").write_bytes(jpeg(1)[:-9])
    (root / "val/2.jpg").unlink()
    (root / "val/2.jpg").symlink_to("3.jpg")
    odd = ["../val/3.jpg,20-29,Male,Black,False", "val/3.jpg", "val/4.jpg,20-29,Male,Martian,False"]
    fairface([*LINES, *odd, "val/zoë.jpg,20-29,Male,Black,False"], {"val/zoë.jpg": jpeg(77)})
    reader = reader_for("fairface")
    ingested = ingest(reader, root, dataset="faces")
    assert ingested.folder_digest == folder_digest(reader, root)
    codes = set(ingested.quarantine["code"])
    assert codes >= {"truncated", "path_outside_root", "ragged_row", "unknown_label", "duplicate", "missing_file"}
    (root / "val/4.jpg").write_bytes(jpeg(500))
    assert ingest(reader, root, dataset="faces").folder_digest != ingested.folder_digest


@pytest.mark.parametrize(
    ("name", "code"),
    [("val/1.jpg", None), ("val/link.jpg", None), ("linked/1.jpg", None), ("val/./1.jpg", None)]
    + [("val/pipe.jpg", "not_a_file"), ("val", "not_a_file"), ("absent.jpg", "missing_file")]
    + [(name, "path_outside_root") for name in ("../x.jpg", "/etc/passwd", "C:/x.jpg", "val/../1.jpg", "out.jpg")]
    + [(name, "bad_path") for name in ("", ".", "a\u202eb.jpg")],
)
def test_a_listed_file_is_read_inside_the_folder_or_refused(
    name: str, code: str | None, tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    root = tmp_path.resolve() / "data"
    (root / "val").mkdir(parents=True)
    (root / "val/1.jpg").write_bytes(jpeg())
    (tmp_path / "x.jpg").write_bytes(jpeg())
    (root / "val/link.jpg").symlink_to("1.jpg")
    (root / "out.jpg").symlink_to("../x.jpg")
    (root / "linked").symlink_to("val", target_is_directory=True)
    os.mkfifo(root / "val/pipe.jpg")
    content = ingestion_module._content(ingestion_module._reader_of(root), Entry(name, None, {}))
    assert content.refused is None if code is None else content.refused and content.refused.code == code
    assert content.data == (jpeg() if code is None else b"")


@pytest.mark.parametrize("name", ["a.jpg", 'a "b".jpg', "a\\b.jpg", "ü é 漢.jpg"])
def test_the_digest_s_line_of_a_file_is_canonical_json(name: str, tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    (tmp_path / name).write_bytes(jpeg())
    content = ingestion_module._content(ingestion_module._reader_of(tmp_path.resolve()), Entry(name, None, {}))
    assert content.line == canonical_json([name, content.image_id])


def test_the_folder_digest_of_utkface_follows_the_names(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    (tmp_path / "1_0_1_1.jpg").write_bytes(jpeg())
    (tmp_path / "odd\udce9.jpg").write_bytes(jpeg())
    before = folder_digest(reader_for("utkface"), tmp_path)
    (tmp_path / "1_0_1_1.jpg").rename(tmp_path / "1_0_2_1.jpg")
    assert folder_digest(reader_for("utkface"), tmp_path) != before


def test_a_reader_need_only_list_and_map(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    class Listed(FairFace):
        def index_files(self, root: Path) -> Sequence[str]:
            return ()

        def entries(self, root: Path) -> Sequence[Entry | Refusal]:
            return [Entry("a.jpg", "test", {"gender": "Female", "race": "Black", "age": "0-2"})]

    (tmp_path / "a.jpg").write_bytes(jpeg())
    assert ingest(Listed(), tmp_path, dataset="own").records["split"].to_list() == ["test"]
    assert folder_digest(Listed(), tmp_path)


def test_the_folder_digest_holds_few_files_at_a_time(tmp_path: Path) -> None:
    """Each is read whole, and what waits to be digested must not hold its bytes: folders hold gigabytes."""
    names, size = [f"{number}.jpg" for number in range(100)], 1 << 18
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(bytes([number]) * size)

    class Listed:
        has_images = True

        def entries(self, _: Path) -> list[Entry]:
            return [Entry(name, None, {}) for name in names]

        def index_files(self, _: Path) -> list[str]:
            return []

    tracemalloc.start()
    try:
        folder_digest(Listed(), tmp_path, workers=4)  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 20 * size
    finally:
        tracemalloc.stop()
