"""The lake: content names, manifests last, damage noticed, the old version safe."""

import csv
import errno
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from upath import UPath

from plumbline.errors import StorageError
from plumbline.storage import Lake
from plumbline.storage.builds import Build, read_build, write_build
from plumbline.storage.files import commit_bytes, csv_bytes
from plumbline.storage.lake import ShardCache

FRAME = pl.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [0.5, float("nan"), -1.0]})


@pytest.fixture
def lake(tmp_path):
    return Lake(UPath(tmp_path))


def test_a_table_comes_back_equal_and_its_name_is_its_content(lake):
    made = lake.write_table("records", FRAME, partition="fairface", details={"listed": 4})
    assert lake.read_table("records", partition="fairface").equals(FRAME)
    assert lake.committed("records", partition="fairface").details == {"listed": 4}
    assert (lake.folder("records", "fairface") / f"{made.sha256}.parquet").exists()


def test_equal_content_gives_equal_bytes_and_other_content_another_name(lake):
    first = lake.write_table("t", FRAME)
    again = lake.write_table("t", FRAME.clone())
    other = lake.write_table("t", FRAME.head(2))
    assert first.sha256 == again.sha256 != other.sha256
    assert lake.read_table("t").height == 2


def test_a_version_is_of_content_and_details_but_not_of_how_much_work_it_was(lake):
    def version(**details):
        return lake.write_table("t", FRAME, details=details).version

    assert version(listed=4, forward_passes=9) == version(listed=4, forward_passes=0) != version(listed=5)
    assert version(listed=4) != lake.write_table("t", FRAME.head(2), details={"listed": 4}).version


def test_damage_lets_what_stored_it_be_computed_again(lake):
    made, whole = (lake.write_table(name, FRAME, partition="fairface") for name in ("t", "u"))
    for each in (made, whole):
        output = [each.name, each.partition, each.version]
        build = Build(each.name, "fairface", "c", {}, [output], data_version="v", run="r")
        write_build(lake, build, parts=None)
    (lake.folder("t", "fairface") / f"{made.sha256}.parquet").write_bytes(b"cut")
    with pytest.raises(StorageError, match="damaged"):
        lake.read_table("t", partition="fairface")
    builds = [path.parent.parent.name for path in lake.root.rglob("build.json")]
    assert builds == ["u"]


def test_what_lies_behind_a_link_is_listed_and_a_link_that_leads_back_is_not_followed(lake, tmp_path_factory):
    made = [lake.write_table("t", FRAME, partition=name) for name in ("fairface", "visitors|clip")]
    folder = lake.folder("t", "visitors|clip")
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "clip"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    lake.folder("t", "back").symlink_to(lake.root)
    assert {each.partition for each in lake.all_committed()} == {each.partition for each in made}


def test_a_damaged_shard_is_none(tmp_path):
    shards = ShardCache(UPath(tmp_path))
    made = shards.commit("ab12", {"x": np.arange(3)}, details={})
    assert shards.load("ab12").sha256 == made.sha256 and shards.is_there("ab12")
    [data] = UPath(tmp_path).rglob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    assert shards.load("ab12") is None and shards.is_listed("ab12")


def test_arrays_keep_shape_type_and_names(lake):
    arrays = {
        "dot": np.arange(6, dtype=np.float32).reshape(2, 3),
        "rows": np.array([3, 1], dtype=np.int64),
        "no axis": np.array(3),
    }
    lake.write_arrays("logits", arrays, partition="fairface|clip")
    found = lake.read_arrays("logits", partition="fairface|clip")
    assert sorted(found) == ["dot", "no axis", "rows"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)


def test_rows_of_arrays_are_read_when_they_are_asked_for(lake):
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    made = lake.write_arrays("logits", {"raw": table, "norm": table[:, 0]})
    found = lake.scan_arrays(made)
    assert (found["raw"].shape, len(found["norm"])) == ((4, 3), 4)
    for rows in (slice(None), slice(1, 3), slice(3, 9), slice(2, 2), slice(0, 0)):
        np.testing.assert_array_equal(found["raw"][rows], table[rows])
        assert found["raw"][rows].shape == table[rows].shape
    path = lake.folder("logits") / f"{made.sha256}.safetensors"
    data = bytearray(path.read_bytes())
    path.unlink()
    with pytest.raises(StorageError, match="went away"):
        found["raw"][:]
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StorageError, match="damaged"):
        lake.scan_arrays(made)


def test_no_manifest_no_data(lake):
    made = lake.write_table("t", FRAME)
    (lake.folder("t") / "manifest.json").unlink()
    assert (lake.folder("t") / f"{made.sha256}.parquet").exists()
    assert lake.committed("t") is None
    with pytest.raises(StorageError, match="has not been made"):
        lake.read_table("t")


def test_a_flipped_bit_is_noticed(lake):
    made = lake.write_table("t", FRAME)
    path = lake.folder("t") / f"{made.sha256}.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StorageError, match="damaged"):
        lake.read_table("t")


def test_a_missing_data_file_is_said_with_what_to_do(lake):
    made = lake.write_table("t", FRAME)
    (lake.folder("t") / f"{made.sha256}.parquet").unlink()
    write_build(lake, Build("maker", "", "1", {}, [["t", "", made.version]], "", ""), parts=None)
    with pytest.raises(StorageError, match="the next audit computes it again, or materialise `maker` again"):
        lake.read_table("t")
    assert read_build(lake, "maker") is None, "so that it is out of date"
    with pytest.raises(StorageError, match=r"if it is of the newest audit, the next audit computes it again$"):
        lake.read_table("t")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_failing_disk_leaves_the_old_version_and_no_temporary_file(lake, monkeypatch, code):
    lake.write_table("t", FRAME)
    before = lake.committed("t")

    def fail(_):
        raise OSError(code, "disk says no")

    monkeypatch.setattr("plumbline.storage.files.os.fsync", fail)
    with pytest.raises(StorageError, match="what was there before is intact"):
        lake.write_table("t", FRAME.head(1))
    monkeypatch.undo()
    assert lake.committed("t") == before
    assert lake.read_table("t").equals(FRAME)
    assert not list(lake.folder("t").glob(".*"))


def test_a_crash_between_data_and_manifest_leaves_the_old_version(lake, monkeypatch):
    lake.write_table("t", FRAME)

    def die_at_manifest(path, data):
        if path.name == "manifest.json":
            raise KeyboardInterrupt
        commit_bytes(path, data)

    monkeypatch.setattr("plumbline.storage.lake.commit_bytes", die_at_manifest)
    with pytest.raises(KeyboardInterrupt):
        lake.write_table("t", FRAME.head(1))
    assert lake.read_table("t").equals(FRAME)


def test_an_object_store_root_follows_the_same_rule():
    lake = Lake(UPath("memory://lake-test"))
    lake.write_table("t", FRAME, partition="a|b")
    assert lake.read_table("t", partition="a|b").equals(FRAME)


def test_a_home_with_brackets_in_its_path_is_a_home_like_others(tmp_path):
    lake = Lake(UPath(tmp_path / "my [work]*" / "lake"))
    lake.write_table("t", FRAME)
    assert lake.scan_table(lake.require("t")).collect().equals(lake.read_table("t"))


def test_a_manifest_of_an_unknown_kind_is_an_error_with_its_place(lake):
    lake.write_table("t", FRAME)
    manifest = lake.folder("t") / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"kind": "weird"}))
    with pytest.raises(StorageError, match=r"manifest\.json") as refused:
        lake.read_table("t")
    assert "'weird'" in refused.value.found


def test_a_torn_manifest_is_an_error_with_its_place(lake):
    lake.write_table("t", FRAME)
    (lake.folder("t") / "manifest.json").write_text(json.dumps({"schema": 1})[:-3])
    with pytest.raises(StorageError, match=r"manifest\.json"):
        lake.read_table("t")


def test_a_manifest_of_another_schema_is_an_error(lake):
    lake.write_table("t", FRAME)
    manifest = lake.folder("t") / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema": 2}))
    with pytest.raises(StorageError, match="schema"):
        lake.read_table("t")


def test_two_writers_of_one_partition_leave_one_result_whole(lake):
    frames = [pl.DataFrame({"writer": [i] * 500}) for i in range(4)]

    def write_often(frame):
        for _ in range(20):
            lake.write_table("t", frame)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write_often, frames))
    assert lake.read_table("t")["writer"].n_unique() == 1


@pytest.mark.parametrize(
    "text",
    [
        'x;"=1+1;y', "a\n=cmd|'/C calc'!A0\nb", "a\r\n=1", "a\n\n=1", 'a\n "@x', 'a; " =1', "a\r\t-1",
        "a calm person\t=cmd|'/C calc'!A0", "a\t @x", "\t=1", 'a\t"=1', "a;\t=1", "\t\t-1", "a\n\t\t+1",
    ],
)  # fmt: skip
def test_nor_where_semicolons_or_tabs_part_cells_and_line_breaks_of_a_text_begin_rows(text):
    written = csv_bytes(pl.DataFrame({"text": [text, "plain\n\nwords; more - of them"]})).decode()
    for parts in (";", "\t"):
        cells = [cell for row in csv.reader(io.StringIO(written), delimiter=parts) for cell in row]
        # LibreOffice takes all three for separators, without a look at quotation marks that stand within a cell.
        cells += re.split(r"[,;\t\r\n]", written)
        assert not [cell for cell in cells if cell.strip(' "\t\r\n')[:1] in ("=", "+", "-", "@")], cells
    assert "plain\n\nwords; more - of them" in written


def test_csv_has_no_formula_in_a_text_cell():
    frame = pl.DataFrame({"group": ["=cmd()", "Black", None, "@x", "-1"], "value": [-1.0, 2.0, 3.0, 4.0, 5.0]})
    lines = csv_bytes(frame).decode().splitlines()
    assert lines == ["group,value", "'=cmd(),-1.0", "Black,2.0", ",3.0", "'@x,4.0", "'-1,5.0"]
