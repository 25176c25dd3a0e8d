import polars as pl
import pytest
from upath import UPath

from plumbline.errors import StorageError
from plumbline.storage import Lake
from plumbline.storage.lake import RecordedLake, named_audit, read_record, recorded_audits, write_record


@pytest.fixture
def lake(tmp_path):
    return Lake(UPath(tmp_path / "lake"))


def made_audit(lake, audit_id, made_at, value):
    """Commit one table as an audit does, and record it."""
    lake.write_table("metrics", pl.DataFrame({"value": [value]}), partition="faces|clip", details={"of": value})
    things = list(lake.all_committed(without=("audit_record",)))
    write_record(lake, things, audit_id=audit_id, made_at=made_at, settings={"title": audit_id}, software={})


@pytest.fixture
def audits(lake):
    for number, audit_id in enumerate(("aaaaaaa1", "aaaaaaa2", "bbbbbbb3"), start=1):
        made_audit(lake, audit_id, f"2026-01-0{number}", number)
    return lake


def test_an_audit_of_the_past_is_read_as_it_was(audits):
    record = read_record(audits, "aaaaaaa1")
    then = RecordedLake(audits.root, record)
    assert then.read_table("metrics", partition="faces|clip")["value"].to_list() == [1]
    assert audits.read_table("metrics", partition="faces|clip")["value"].to_list() == [3]
    assert record.settings == {"title": "aaaaaaa1"} and record.made_at == "2026-01-01"
    assert then.require("metrics", partition="faces|clip").details == {"of": 1}


def test_the_order_of_settings_is_kept(lake):
    scorers = {"ours": {"kind": "own"}, "another": {"kind": "offline"}}
    write_record(lake, [], audit_id="a", made_at="2026-01-01", settings={"title": "a", "scorers": scorers}, software={})
    read = read_record(lake, "a").settings
    assert list(read) == ["title", "scorers"] and list(read["scorers"]) == ["ours", "another"]


def test_what_the_past_audit_lacked_is_not_read_from_today(audits):
    audits.write_table("later", pl.DataFrame({"value": [9]}))
    then = RecordedLake(audits.root, read_record(audits, "bbbbbbb3"))
    with pytest.raises(StorageError, match="has not been made"):
        then.require("later")


def test_the_past_is_not_written_to(audits):
    then = RecordedLake(audits.root, read_record(audits, "aaaaaaa1"))
    with pytest.raises(StorageError, match="not written to"):
        then.write_table("metrics", pl.DataFrame({"value": [9]}))


def test_deleted_data_is_noticed(audits):
    then = RecordedLake(audits.root, read_record(audits, "aaaaaaa1"))
    made = then.require("metrics", partition="faces|clip")
    (audits.folder("metrics", "faces|clip") / f"{made.sha256}.parquet").unlink()
    with pytest.raises(StorageError, match="is gone"):
        then.read_table("metrics", partition="faces|clip")


def test_audits_are_named_by_age_or_by_the_start_of_their_id(audits):
    assert list(recorded_audits(audits)) == ["bbbbbbb3", "aaaaaaa2", "aaaaaaa1"]
    named = {name: named_audit(audits, name) for name in ("newest", "newest~0", "newest~2", "bbbbbb", "aaaaaaa2")}
    assert list(named.values()) == ["bbbbbbb3", "bbbbbbb3", "aaaaaaa1", "bbbbbbb3", "aaaaaaa2"]


@pytest.mark.parametrize("name", ["newest~3", "aaaaaa", "bbbbb", "cccccccc", "", "newest~x"])
def test_a_name_of_no_audit_or_of_several_is_refused_with_those_there_are(audits, name):
    with pytest.raises(StorageError, match="bbbbbbb3"):
        named_audit(audits, name)


def test_an_audit_that_comes_again_is_the_newest_again(audits):
    made_audit(audits, "aaaaaaa1", "2026-01-04", 1)
    assert list(recorded_audits(audits)) == ["aaaaaaa1", "bbbbbbb3", "aaaaaaa2"]


def test_caches_beside_the_lake_are_left_out(audits):
    (audits.root / "embeddings" / "x").mkdir(parents=True)
    assert {made.name for made in audits.all_committed(without=("audit_record", "embeddings"))} == {"metrics"}
