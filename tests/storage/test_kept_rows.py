"""Kept rows: nothing twice, nothing torn, found again by another process, little memory."""

import errno
import os

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from upath import UPath

from plumbline.errors import StorageError
from plumbline.storage.kept_rows import ABSENT, KeptRows, KeySet, PartWriter

SCHEMA = {"key": pl.String, "value": pl.Int64}


def rows(*keys: str, value: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"key": list(keys), "value": [value] * len(keys)}, schema=SCHEMA)


def opened(root) -> KeptRows:
    return KeptRows(UPath(root), SCHEMA, key="key")


def content(kept: KeptRows) -> dict[str, int]:
    frame = kept.scan().collect()
    assert frame["key"].n_unique() == frame.height
    return dict(zip(frame["key"], frame["value"]))


def test_an_absent_folder_is_empty_and_is_not_made(tmp_path):
    kept = opened(tmp_path / "none")
    assert len(kept) == 0
    assert kept.scan().collect_schema() == pl.Schema(SCHEMA)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("where", ["disk", "store"])
def test_rows_are_found_again(tmp_path, where):
    root = tmp_path if where == "disk" else f"memory://{tmp_path.name}"
    kept = opened(root)
    assert kept.keep(rows("a", "b")) == 2
    assert kept.keep(rows("c")) == 1
    again = opened(root)
    assert len(again) == 3
    assert again.damaged == 0
    assert content(again) == content(kept) == {"a": 1, "b": 1, "c": 1}
    assert again.scan().filter(pl.col("key") == "c").select("value").collect().to_series().to_list() == [1]
    assert again.scan().head(2).collect().height == 2


def test_a_key_is_kept_once_and_its_first_row_stays(tmp_path):
    kept = opened(tmp_path)
    kept.keep(rows("a"))
    assert kept.keep(rows("a", "b", "b", value=2)) == 1
    assert kept.keep(rows("a", "b", value=3)) == 0
    assert content(opened(tmp_path)) == {"a": 1, "b": 2}


def test_lacking_gives_each_absent_key_once_in_order(tmp_path):
    kept = opened(tmp_path)
    kept.keep(rows("b"))
    wanted = pl.DataFrame({"key": ["c", "b", "a", "c"], "text": ["1", "2", "3", "4"]})
    assert kept.lacking(wanted).rows() == [("c", "1"), ("a", "3")]


def test_a_damaged_part_is_removed_and_its_rows_are_lacking(tmp_path):
    kept = opened(tmp_path)
    kept.keep(rows("a"))
    kept.keep(rows("b"))
    part = next(p for p in tmp_path.iterdir() if pl.read_parquet(p)["key"].to_list() == ["a"])
    part.write_bytes(part.read_bytes()[:-3])
    again = opened(tmp_path)
    assert again.damaged == 1
    assert content(again) == {"b": 1}
    assert again.keep(rows("a", "b")) == 1
    assert opened(tmp_path).damaged == 0


def test_two_processes_that_made_the_same_rows_leave_one_of_each(tmp_path):
    first, second = opened(tmp_path), opened(tmp_path)
    first.keep(rows("a", "b", value=1))
    second.keep(rows("b", "c", value=2))
    third, fourth = opened(tmp_path), opened(tmp_path)
    assert content(third) == content(fourth)
    assert set(content(third)) == {"a", "b", "c"}
    assert len(third) == 3


def test_a_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    kept = opened(tmp_path)
    kept.keep(rows("a"))

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="could not be written"):
            kept.keep(rows("b"))
    assert kept.lacking(rows("b")).height == 1
    assert content(kept) == content(opened(tmp_path)) == {"a": 1}


def test_rows_of_another_schema_are_refused(tmp_path):
    opened(tmp_path).keep(rows("a"))
    with pytest.raises(StorageError, match="another schema"):
        KeptRows(UPath(tmp_path), {"key": pl.String, "value": pl.Float64}, key="key")


def test_only_the_parts_with_asked_keys_are_read(tmp_path):
    kept = opened(tmp_path)
    for key in "abcd":
        kept.keep(rows(key))
    for store in (kept, opened(tmp_path)):
        parts = store.parts_with(pl.Series(["b", "d", "z"]))
        assert len(parts) == 2
        assert sorted(store.scan(parts).collect()["key"]) == ["b", "d"]
        assert store.scan(store.parts_with(pl.Series(["z"]))).collect().is_empty()


@given(st.lists(st.lists(st.integers(0, 40).map(str), max_size=20), max_size=12))
@settings(max_examples=60)
def test_a_key_set_says_what_a_dictionary_says(batches):
    keys, obvious, asked = KeySet(), {}, [str(i) for i in range(45)]
    for number, batch in enumerate(batches):
        new = keys.add([pl.Series(batch, dtype=pl.String)], number)
        fresh = []
        for key in batch:
            fresh.append(key not in obvious)
            obvious.setdefault(key, number)
        assert new.tolist() == fresh
        assert keys.places(pl.Series(asked)).tolist() == [obvious.get(key, ABSENT) for key in asked]
    assert len(keys) == len(obvious)
    at_once = KeySet()
    new = at_once.add([pl.Series(batch, dtype=pl.String) for batch in batches], 0)
    assert new.sum() == len(at_once) == len(obvious)
    assert at_once.places(pl.Series(asked)).tolist() == keys.places(pl.Series(asked)).tolist()


def test_a_writer_keeps_parts_by_size_and_by_age_and_what_is_left_when_an_error_ends_it(tmp_path):
    kept, now = opened(tmp_path), [0.0]
    writer = PartWriter(kept, most_rows=2, most_seconds=30, clock=lambda: now[0])
    parts = []
    with pytest.raises(KeyboardInterrupt), writer:
        for key, at in (("a", 0), ("b", 1), ("c", 2), ("d", 40), ("e", 50)):
            now[0] = at
            writer.add({"key": key, "value": at})
            parts.append(kept.parts)
        raise KeyboardInterrupt
    assert parts == [0, 1, 1, 2, 2]
    assert content(opened(tmp_path)) == {"a": 0, "b": 1, "c": 2, "d": 40, "e": 50}
    lone = PartWriter(opened(tmp_path / "age"), most_rows=9, most_seconds=30, clock=iter([0, 10, 31]).__next__)
    lone.add({"key": "a", "value": 1})
    assert len(opened(tmp_path / "age")) == 0
    lone.add({"key": "b", "value": 1})
    assert len(opened(tmp_path / "age")) == 2
