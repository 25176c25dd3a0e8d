"""Every kind of storage on a real S3 server keeps the rules that it keeps on a disk."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from endpoint_doubles import settings
from homes import make_home
from upath import UPath

from plumbline.errors import StorageError
from plumbline.generators.judge import RUNS, StereotypeJudge
from plumbline.http.chat import ChatClient, ChatReply
from plumbline.storage import Lake, ShardCache, files
from plumbline.storage.files import commit_bytes, require_reachable
from plumbline.storage.kept_rows import KeptRows
from plumbline.storage.lake import RecordedLake, named_audit, read_record, recorded_audits, write_record

FRAME = pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, float("nan"), -1.0]})
ROWS = {"key": pl.String, "score": pl.Float64}


@pytest.fixture
def workspace(s3, monkeypatch, tmp_path):
    """Return the workspace of an audit file with an S3 address, a prefix of its own for each test."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return make_home(tmp_path, storage={"root": f"s3://audits/{tmp_path.name}"}).workspace


def test_tables_and_arrays_are_those_of_a_disk(workspace, tmp_path):
    local, lake = Lake(UPath(tmp_path / "lake")), workspace.lake
    arrays = {"dot": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert lake.write_table("t", FRAME, partition="d|e") == local.write_table("t", FRAME, partition="d|e")
    assert lake.write_arrays("x", arrays) == local.write_arrays("x", arrays)
    made = lake.require("t", partition="d|e")
    assert lake.read_table("t", partition="d|e").equals(FRAME)
    assert lake.scan_table(made).filter(pl.col("a") > 1).collect().equals(FRAME.filter(pl.col("a") > 1))
    np.testing.assert_array_equal(lake.read_arrays("x")["dot"], arrays["dot"])
    assert {(each.name, each.partition) for each in lake.all_committed()} == {("t", "d|e"), ("x", "")}
    assert [each.name for each in lake.all_committed(without={"x"})] == ["t"]


def test_damaged_and_missing_data_are_noticed(workspace):
    lake = workspace.lake
    made = lake.write_table("t", FRAME)
    data = lake.folder("t") / f"{made.sha256}.parquet"
    data.write_bytes(b"PAR1 something else PAR1")
    with pytest.raises(StorageError, match="damaged"):
        lake.read_table("t")
    data.unlink()
    with pytest.raises(StorageError, match="gone"):
        lake.scan_table(made)
    assert lake.committed("never made") is None


def test_shards_are_found_again_and_damaged_ones_are_not(workspace):
    cache = workspace.shards
    made = cache.commit("ab12", {"x": np.ones(3)}, details={"batches": 1})
    assert cache.is_listed("ab12")
    assert ShardCache(cache.root).load("ab12").sha256 == made.sha256
    (cache.root / "ab" / f"{made.sha256}.safetensors").write_bytes(b"no")
    assert cache.load("ab12") is None
    assert not cache.is_listed("ab13")


def test_kept_rows_are_found_again_and_damaged_parts_are_removed(workspace):
    def opened():
        return KeptRows(workspace.scores / "scorer", ROWS, key="key")

    first = pl.DataFrame({"key": ["a", "b"], "score": [0.1, 0.2]})
    second = pl.DataFrame({"key": ["b", "c"], "score": [0.9, 0.3]})
    kept = opened()
    assert [kept.keep(first), kept.keep(second)] == [2, 1]
    again = opened()
    assert (len(again), again.parts, again.damaged) == (3, 2, 0)
    high = again.scan().filter(pl.col("score") > 0.15).sort("key")
    assert high.select("key").collect()["key"].to_list() == ["b", "c"]
    some = next(iter((workspace.scores / "scorer").glob("*.parquet")))
    some.write_bytes(b"no")
    assert opened().damaged == 1
    assert len(opened()) < 3


def test_judgements_are_found_again(workspace, monkeypatch):
    asked = []

    def ask_all(_, requests):
        asked.extend(requests)
        return ((position, ChatReply('["kind"]', "stop")) for position in range(len(requests)))

    monkeypatch.setattr(ChatClient, "ask_all", ask_all)
    for _ in range(2):
        judge = StereotypeJudge(settings("http://127.0.0.1:9/v1"), workspace.judgements)
        assert judge("man", ["kind", "tall"]) == ["kind"]
        assert len(asked) == RUNS, "nothing is asked twice"


def test_an_audit_of_the_past_is_found_by_its_record(workspace):
    lake = workspace.lake
    assert recorded_audits(lake) == {}
    old = lake.write_table("t", FRAME)
    write_record(
        lake, [old], audit_id="a" * 64, made_at="2026-01-01T00:00:00+00:00", settings={"title": "t"}, software={}
    )
    new = lake.write_table("t", FRAME.head(1))
    write_record(
        lake, [new], audit_id="b" * 64, made_at="2026-01-02T00:00:00+00:00", settings={"title": "t"}, software={}
    )
    assert list(recorded_audits(lake)) == ["b" * 64, "a" * 64]
    then = RecordedLake(lake.root, read_record(lake, named_audit(lake, "newest~1")))
    assert then.read_table("t").equals(FRAME)


def test_what_another_process_writes_is_seen_at_once(workspace, s3):
    """A client that remembers what it listed would go on without the other machine's rows."""
    folder = workspace.scores / "scorer"
    kept = KeptRows(folder, ROWS, key="key")
    kept.keep(pl.DataFrame({"key": ["a"], "score": [0.1]}))
    assert len(list(folder.glob("*.parquet"))) == 1
    script = (
        "import polars as pl, sys; from upath import UPath; from plumbline.storage.kept_rows import KeptRows;"
        "KeptRows(UPath(sys.argv[1]), {'key': pl.String, 'score': pl.Float64}, key='key')"
        ".keep(pl.DataFrame({'key': ['b'], 'score': [0.2]}))"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, env=os.environ | s3)
    assert len(KeptRows(folder, ROWS, key="key")) == 2


def test_a_put_replaces_whole_and_lists_once(workspace):
    path = workspace.lake.root / "one" / "manifest.json"
    for number in range(3):
        commit_bytes(path, json.dumps(number).encode())
    assert path.read_text() == "2"
    assert [each.name for each in path.parent.iterdir()] == ["manifest.json"]


def test_a_store_that_takes_connections_and_says_nothing_is_given_up(workspace, monkeypatch):
    monkeypatch.setattr(files, "_ANSWERS_S", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StorageError, match=r"(?s)does not answer.*s3://audits/x.*nothing within"):
            require_reachable(UPath("s3://audits/x", client_kwargs={"endpoint_url": address}))


def test_a_store_that_cannot_be_written_or_reached_is_said(workspace, monkeypatch):
    with pytest.raises(StorageError, match="could not be written"):
        commit_bytes(UPath("s3://no-such-bucket/x"), b"1")
    require_reachable(workspace.lake.root, writable=True)
    assert not [*workspace.lake.root.iterdir()] if workspace.lake.root.exists() else True, (
        "nothing is left of the trial"
    )
    with pytest.raises(StorageError, match=r"(?s)nothing can be kept.*no-such-bucket.*make the bucket"):
        require_reachable(UPath("s3://no-such-bucket/x"), writable=True)
    nobody = UPath(
        "s3://audits/x",
        client_kwargs={"endpoint_url": "http://127.0.0.1:9"},
        config_kwargs={"retries": {"max_attempts": 1}},
    )
    with pytest.raises(StorageError, match=r"(?s)cannot be reached.*Could not connect.*docs/scale\.md"):
        require_reachable(nobody)
    with pytest.raises(StorageError, match=r"(?s)could not be written.*Could not connect"):
        commit_bytes(nobody / "x", b"1")
