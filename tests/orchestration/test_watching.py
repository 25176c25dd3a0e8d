"""What the sensors see: sources that look different and have come to rest, and checkpoints dropped into a folder."""

import json
import shutil
import sys

import dagster as dg
import pytest
import yaml

from orchestration.audit_commands import audit_command
from orchestration.audit_plan import AuditPlan
from orchestration.observing import folder_fingerprint, source_fingerprints, watch_sources
from orchestration.watched_folder import find_checkpoints, watch_folder
from plumbline.errors import ConfigError
from resources.checkout import PROJECT
from resources.workspace import Workspace

TINY = PROJECT / "plumbline" / "world" / "checkpoints"
WEIGHTS = "open_clip_model.safetensors"


@pytest.fixture
def workspace(tmp_path):
    """Return a home whose audit file watches a folder."""
    (tmp_path / "dropped").mkdir()
    (tmp_path / "home").mkdir()
    shutil.copytree(TINY / "small-control-3k", tmp_path / "mine")
    audit = {
        "labeller": "known",
        "datasets": {
            "one": {"reader": "fairface", "root": str(tmp_path / "one")},
            "people": {"reader": "socialcounterfactuals", "root": str(tmp_path / "people")},
        },
        "encoders": {
            "known": {"address": f"local-dir:{TINY / 'small-bazaar-3k'}", "factors": {"size": "small"}},
            "mine": {"address": f"local-dir:{tmp_path / 'mine'}"},
        },
        "audit": [
            {"encoders": ["known"], "suites": ["crime"]},
            {"encoders": ["known"], "datasets": ["one"], "suites": ["perception"]},
            {"encoders": ["mine"], "datasets": ["one"], "suites": ["communion"]},
        ],
        "watch": {"folder": str(tmp_path / "dropped"), "like": "known"},
    }
    path = tmp_path / "audit.yaml"
    path.write_text(yaml.safe_dump(audit))
    return Workspace(audit_path=path, home=tmp_path / "home")


@pytest.fixture
def instance(tmp_path):
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as found:
        yield found


def drop(workspace, name, *, like="small-atlas-3k"):
    folder = workspace.home.parent / "dropped" / name
    shutil.copytree(TINY / like, folder)
    return folder


def look(sensor, workspace, instance, *, cursor=None):
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources={"workspace": workspace}) as context:
        return sensor(context)


def added(result):
    return {request.partitions_def_name: list(request.partition_keys) for request in result.dynamic_partitions_requests}


def test_a_dropped_checkpoint_is_audited_like_the_one_that_is_named(workspace, instance):
    folder = drop(workspace, "fresh-7")
    result = look(watch_folder, workspace, instance)
    assert result.skip_reason.skip_message == "fresh-7 is audited now"
    assert "fresh-7" in added(result)["encoder"]
    audit = workspace.audit
    assert audit.cells["one", "fresh-7"] == audit.cells["one", "known"] == ("crime", "perception")
    assert audit.cells["people", "fresh-7"] == ("crime",)
    assert workspace.checkpoint("fresh-7").folder == folder
    assert audit.encoders["fresh-7"].factors == {}, "they are facts of the other one"
    assert "1 checkpoint(s), all known" in look(watch_folder, workspace, instance).skip_reason.skip_message


def test_a_checkpoint_that_is_still_being_copied_waits(workspace, instance):
    folder = drop(workspace, "fresh")
    whole = (folder / WEIGHTS).read_bytes()
    for part in (whole[:4], whole[:500], whole[:-1]):
        (folder / WEIGHTS).write_bytes(part)
        result = look(watch_folder, workspace, instance)
        assert "fresh is not audited: the weights are not complete" in result.skip_reason.skip_message
        assert "fresh" not in workspace.audit.encoders
    (folder / WEIGHTS).write_bytes(whole)
    assert look(watch_folder, workspace, instance).skip_reason.skip_message == "fresh is audited now"


@pytest.mark.parametrize(
    ("name", "like", "why"),
    [
        ("Fresh One", "small-atlas-3k", "not an id"),
        ("mine", "small-atlas-3k", "a model of this name"),
        ("llava", "llava-bazaar", "of no family that can be audited"),
        ("pairs", "bridgetower-bazaar-3k", "perception"),
    ],
)
def test_what_cannot_be_audited_is_said_with_the_reason(workspace, instance, name, like, why):
    drop(workspace, name, like=like)
    result = look(watch_folder, workspace, instance)
    assert result.skip_reason.skip_message.startswith(f"{name} is not audited: ")
    assert why in result.skip_reason.skip_message
    assert set(workspace.audit.encoders) == {"known", "mine"}


def test_a_folder_that_is_not_there_is_said_by_the_sensor_and_refused_by_an_audit(workspace, instance):
    (workspace.home.parent / "dropped").rmdir()
    assert "the watched folder is not there" in look(watch_folder, workspace, instance).skip_reason.skip_message
    with pytest.raises(ConfigError, match="the watched folder is not there"):
        find_checkpoints(workspace)


@pytest.mark.parametrize(
    ("watch", "said"),
    [
        ({"folder": "x", "like": "knwon"}, r"key watch\.like\n.*'knwon'\n.*mean `known`"),
        ({"folder": "x"}, r"key watch\.like\n"),
        ({"folder": "x", "like": "known", "every": 3}, r"key watch\.every\n"),
    ],
)
def test_a_mistake_in_the_audit_file_is_said_with_its_key(workspace, watch, said):
    audit = yaml.safe_load(workspace.audit_path.read_text())
    workspace.audit_path.write_text(yaml.safe_dump(audit | {"watch": watch}))
    with pytest.raises(ConfigError, match=said):
        workspace.audit  # noqa: B018


def test_a_checkpoint_that_is_taken_away_is_no_longer_audited(workspace):
    folder = drop(workspace, "fresh")
    find_checkpoints(workspace)
    assert "fresh" in workspace.audit.encoders
    shutil.rmtree(folder)
    assert "fresh" not in workspace.audit.encoders


def test_one_that_comes_again_half_copied_waits_like_a_new_one(workspace):
    folder = drop(workspace, "fresh")
    assert find_checkpoints(workspace).added == ["fresh"]
    shutil.rmtree(folder)
    find_checkpoints(workspace)
    weights = drop(workspace, "fresh") / WEIGHTS
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "fresh" in find_checkpoints(workspace).refused and "fresh" not in workspace.audit.encoders
    weights.write_bytes(whole)
    assert find_checkpoints(workspace).added == ["fresh"] and "fresh" in workspace.audit.encoders


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\0\0", b"null", b'{"fresh": 5}'])
def test_a_damaged_note_of_what_was_found_is_none_and_the_next_look_finds_it(workspace, damage):
    drop(workspace, "fresh")
    find_checkpoints(workspace)
    (workspace.home / "watched.json").write_bytes(damage)
    assert "fresh" not in workspace.audit.encoders
    find_checkpoints(workspace)
    assert "fresh" in workspace.audit.encoders


def test_the_digest_of_the_audit_is_of_what_is_audited_not_of_the_folder(workspace):
    before = workspace.audit.digest
    drop(workspace, "fresh")
    assert workspace.audit.digest == before
    find_checkpoints(workspace)
    assert workspace.audit.digest != before


def test_a_source_is_read_once_it_has_been_seen_twice_the_same(workspace, instance):
    first = look(watch_sources, workspace, instance)
    assert not first.run_requests
    second = look(watch_sources, workspace, instance, cursor=first.cursor)
    (request,) = second.run_requests
    read = request.run_config["ops"]["read_sources"]["config"]["sources"]
    assert set(read) == set(source_fingerprints(workspace))
    third = look(watch_sources, workspace, instance, cursor=second.cursor)
    assert not third.run_requests

    weights = workspace.home.parent / "mine" / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    writing = look(watch_sources, workspace, instance, cursor=third.cursor)
    assert not writing.run_requests
    weights.write_bytes(weights.read_bytes() + b"x")
    still = look(watch_sources, workspace, instance, cursor=writing.cursor)
    assert not still.run_requests
    done = look(watch_sources, workspace, instance, cursor=still.cursor)
    (request,) = done.run_requests
    assert request.run_config["ops"]["read_sources"]["config"]["sources"] == ["encoder_checkpoint mine"]
    assert (
        json.loads(done.cursor)["encoder_checkpoint mine"]["seen"]
        == source_fingerprints(workspace)["encoder_checkpoint mine"]
    )


def test_partitions_that_the_audit_file_names_are_registered_by_the_look(workspace, instance):
    instance.add_dynamic_partitions("encoder", ["known"])
    assert added(look(watch_sources, workspace, instance)) == {"dataset": ["one", "people"], "encoder": ["mine"]}


def test_a_stamp_sees_what_size_and_name_do_not_tell(tmp_path):
    (tmp_path / "inside").mkdir()
    file = tmp_path / "inside" / "a"
    file.write_bytes(b"one")
    before = folder_fingerprint(tmp_path)
    assert folder_fingerprint(tmp_path) == before
    other = tmp_path / "b"
    other.write_bytes(b"two")
    other.replace(file)
    assert folder_fingerprint(tmp_path) != before


def test_the_job_reports_only_what_has_changed(workspace, instance):
    from orchestration.observing import observe_sources

    def observed():
        config = {"sources": ["encoder_checkpoint mine", "prompt_suites"]}
        result = observe_sources.execute_in_process(
            instance=instance,
            resources={"workspace": workspace},
            run_config={"ops": {"read_sources": {"config": config}}},
        )
        assert result.success
        keys = (dg.AssetKey("encoder_checkpoint"), dg.AssetKey("prompt_suites"), dg.AssetKey("dataset_folder"))
        return [len(instance.fetch_observations(key, limit=10).records) for key in keys]

    assert observed() == [1, 1, 0]
    assert observed() == [1, 1, 0]
    whole = (TINY / "small-bazaar-3k" / WEIGHTS).read_bytes()
    weights = workspace.home.parent / "mine" / WEIGHTS
    weights.write_bytes(whole[:-1])
    assert observed() == [1, 1, 0], "still being copied: what is computed from it would fail"
    weights.write_bytes(whole)
    assert observed() == [2, 1, 0]


def test_an_audit_says_what_lies_in_the_watched_folder_before_anything_else(workspace, monkeypatch, capsys):
    drop(workspace, "fresh")
    monkeypatch.setattr(AuditPlan, "require_possible", lambda _: sys.exit("far enough"))
    monkeypatch.setenv("PLUMBLINE_HOME", str(workspace.home))
    with pytest.raises(SystemExit, match="far enough"):
        audit_command(config=workspace.audit_path)
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("watched folder: ") and "fresh" in said[1]
