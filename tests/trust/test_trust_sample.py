"""Half a minute of `make trust`: every parser on some examples, and an audit that meets a fault at system calls."""

import base64
import itertools
import random
import sqlite3
import zipfile
import zlib
from contextlib import closing

import daemon
import damage
import interruptions
import parsers
import polars as pl
import pytest
from faults import FAIL_ONCE, Fault, Point, compiler
from ground import CANARY, Ground, holds_key
from homes import SHARED, set_up_stores


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_foreign_bytes_are_read_or_refused_in_words(name):
    examples = itertools.islice(parsers.examples_of(name, "sample"), 60)
    crashes = [crash for data in examples if (crash := parsers.tried(name, data)) is not None]
    assert not crashes, crashes[0].why


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_well_formed_files_are_read(name, tmp_path):
    for number, data in enumerate(parsers.PARSERS[name].seeds()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        parsers.PARSERS[name].read(data, folder)


def test_a_parser_that_breaks_is_noticed(monkeypatch):
    def read(data, folder):
        return data.decode("ascii")[999_999]

    monkeypatch.setitem(parsers.PARSERS, "breaks", parsers.Parser(read, lambda: [b"some bytes"]))
    assert "IndexError" in parsers.tried("breaks", b"some bytes").why


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ""),
        ({"memory_mib": 600}, "memory_mib rose by 100"),
        ({"files": 60}, "files rose by 20"),
        ({"temporary": 1}, "temporary: 1"),
        ({"slots": 2}, "slots: 2"),
        ({"failed": 2}, "2 runs failed"),
        ({"asked": 0}, "endpoint_fails: it was not asked"),
        ({"ticks": daemon.MOST_TICKS}, "never came to rest after endpoint_fails"),
    ],
)
def test_what_a_daemon_does_not_give_back_is_noticed(change, told):
    rest = {
        "event": "goes",
        "ticks": 2,
        "memory_mib": 500,
        "files": 40,
        "temporary": 0,
        "slots": 0,
        "unfinished": 0,
        "failed": 1,
    }
    held = [rest | {"asked": 0} for _ in range(8)] + [rest | {"event": "endpoint_fails", "asked": 3} | change]
    assert daemon.grown(held) == told


@pytest.fixture(scope="module")
def ground(tmp_path_factory, made_once, planted_base):
    if compiler() is None:
        pytest.skip("faults at system calls need a C compiler: apt-get install gcc")
    before, stores = dict(SHARED), made_once("stores", set_up_stores)[0] / "home"
    yield Ground(tmp_path_factory.mktemp("trust"), stores=stores, planted=planted_base)
    SHARED.clear()
    SHARED.update(before)


def test_calls_are_those_of_a_real_audit(ground):
    kinds = {str(point) for point in ground.points}
    assert "rename */lake/metric_table/manifest.json" in kinds
    assert any(kind.startswith("write */dagster/history/runs.db") for kind in kinds), "SQLite's own"
    assert any(kind.startswith("write */mlflow.db") for kind in kinds)


@pytest.mark.parametrize("trial", [interruptions.kill_at_a_call, damage.in_the_home])
def test_one_trial(ground, trial):
    result = trial(ground, random.Random("sample"), trial.__name__, 5)
    assert result.right, (result.what, result.why)


def test_a_refused_call_is_met(ground):
    import errno

    point = Point("rename", "*/lake/metric_table/manifest.json")
    fault = Fault(point, 1, FAIL_ONCE, error=errno.EIO)
    home = ground.copy("refused")
    code, output, fired = interruptions.with_fault(ground, home, fault, "audit", "--force", "metric_table")
    assert fired and code == 1 and "Input/output error" in output and "Traceback" not in output, output


def packed_in(folder):
    """Yield files that hold the key, each packed in another way."""
    key = CANARY.encode()
    letters = "".join(random.Random(0).choices("abcdefgh", k=2000))
    table = pl.DataFrame({"of": [f"{letters} a key {CANARY} {letters[::-1]}"] * 3})
    table.write_parquet(folder / "table.parquet", compression="zstd", statistics=False)
    yield folder / "table.parquet"
    with closing(sqlite3.connect(folder / "store.db")) as store, store:
        store.execute("CREATE TABLE runs (body BLOB)")
        store.execute("INSERT INTO runs VALUES (?)", [zlib.compress(b"x" * 200 + key)])
    yield folder / "store.db"
    with zipfile.ZipFile(folder / "bundle.zip", "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("log.txt", b"y" * 200 + key)
    yield folder / "bundle.zip"
    page = random.Random(0).randbytes(600) + key
    # Letters before it that are no whole group must not end the search.
    (folder / "page.html").write_bytes(b"A" * 201 + b" <p>" + base64.b64encode(zlib.compress(page)) + b"</p>")
    yield folder / "page.html"


def test_a_key_is_found_whatever_it_is_packed_in(tmp_path):
    packed = list(packed_in(tmp_path))
    assert [path.name for path in packed if CANARY.encode() in path.read_bytes()] == [], "it is not packed"
    assert [path.name for path in packed if not holds_key(path)] == []
    (tmp_path / "other.txt").write_text("no key")
    assert not holds_key(tmp_path / "other.txt")
