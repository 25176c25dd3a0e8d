"""Fetching a commit again and the newest one: one commit whole with its pin, whatever breaks off."""

import json
import os
from pathlib import Path

import pytest
from hub_of_files import (
    COMMIT,
    EARLIER_FILES,
    HUB_ADDRESS,
    LATER,
    LLAVA,
    ROBERTA,
    TAG,
    Hub,
    contents,
    generative,
    workspace,
)

from plumbline.errors import CheckpointError
from resources import fetching_aside, fetching_checkpoints
from resources.fetching_checkpoints import fetch_checkpoint, pinned_commit

pytestmark = pytest.mark.usefixtures("converted_here")


def test_a_tag_keeps_the_commit_of_its_first_fetch_until_the_newest_is_asked_for(tmp_path):
    home, later = workspace(tmp_path, "ViT-B-32-quickgelu/openai"), "f" * 40
    folder = fetch_checkpoint(home, "e", hub=Hub({"open_clip_model.safetensors": b"w", "vocab.json": b"{}"}))
    assert pinned_commit(home, "e") == COMMIT

    again = Hub({"open_clip_model.safetensors": b"w"}, newest=later)
    fetch_checkpoint(home, "e", hub=again)
    assert [asked[1] for asked in again.asked] == [COMMIT], "what is there whole is not fetched again"
    assert pinned_commit(home, "e") == COMMIT

    broken = Hub({"open_clip_model.safetensors": b"v"}, newest=later)
    broken.snapshot_download = Hub({}, error=OSError("cut")).snapshot_download
    with pytest.raises(CheckpointError):
        fetch_checkpoint(home, "e", newest=True, hub=broken)
    assert pinned_commit(home, "e") == COMMIT and (folder / "open_clip_model.safetensors").read_bytes() == b"w"

    newer = Hub({"open_clip_model.safetensors": b"v"}, newest=later)
    fetch_checkpoint(home, "e", newest=True, hub=newer)
    assert [asked[1] for asked in newer.asked] == [None, later]
    assert pinned_commit(home, "e") == later
    assert contents(folder) == ["fetched.json", "open_clip_config.json", "open_clip_model.safetensors"], (
        "nothing of the commit before"
    )


def fetched_tag(tmp_path):
    home = workspace(tmp_path, TAG)
    return home, fetch_checkpoint(home, "e", hub=Hub(EARLIER_FILES))


def state(home):
    """Return the pinned commit and the weights that an audit loads."""
    return pinned_commit(home, "e"), home.checkpoint("e").weights[0].read_bytes()


@pytest.mark.parametrize(
    "files",
    [
        {"open_clip_abc.safetensors": b"v", "open_clip_abd.safetensors": b"v"},
        {"open_clip_pytorch_model.bin": b"no pickle"},
        {"vocab.json": b"{}"},
    ],
)
def test_a_newest_commit_that_cannot_be_audited_leaves_the_earlier_one(tmp_path, files):
    home, folder = fetched_tag(tmp_path)
    before = contents(folder)
    with pytest.raises(CheckpointError):
        fetch_checkpoint(home, "e", newest=True, hub=Hub(files, newest=LATER))
    assert contents(folder) == before
    assert state(home) == (COMMIT, b"w")


STEPS = {
    "download": (Hub, "snapshot_download"),
    "configuration": (fetching_checkpoints, "commit_bytes"),
    "check": (fetching_checkpoints, "locate"),
    "digests": (fetching_checkpoints, "file_digests"),
    "note": (fetching_checkpoints, "write_note"),
    "old one aside": (Path, "rename"),
    "new one in": (fetching_aside, "move_into_place"),
    "settling": (fetching_aside, "settle"),
    "old one away": (fetching_aside.shutil, "rmtree"),
}


def breaking(really, how, after):
    """Return a function that ends as `how` does, before it has done anything or after."""

    def broken(*args, **options):
        if after:
            really(*args, **options)
        return how()

    return broken


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_newest_fetch_that_is_broken_off_leaves_one_commit_usable(tmp_path, step, after, monkeypatch):
    home, _ = fetched_tag(tmp_path)
    owner, name = STEPS[step]
    newer = Hub({"open_clip_model.safetensors": b"v"}, newest=LATER)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, breaking(getattr(owner, name), interrupt, after))
        fetch_checkpoint(home, "e", newest=True, hub=newer)
    assert state(home) in [(COMMIT, b"w"), (LATER, b"v")]
    fetch_checkpoint(home, "e", newest=True, hub=newer)
    assert state(home) == (LATER, b"v")
    assert [path.name for path in home.fetched.iterdir()] == [home.checkpoint("e").folder.name]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_the_fetch_after_a_kill_has_one_commit_whole_with_its_pin(tmp_path, step, after, monkeypatch):
    home, _ = fetched_tag(tmp_path)
    owner, name = STEPS[step]
    child = os.fork()
    if not child:
        try:
            setattr(owner, name, breaking(getattr(owner, name), lambda: os._exit(9), after))
            newer = Hub({"open_clip_model.safetensors": b"v"}, newest=LATER)
            fetch_checkpoint(home, "e", newest=True, hub=newer)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    hub = Hub({"open_clip_model.safetensors": b"another"})
    fetch_checkpoint(home, "e", hub=hub)
    assert hub.given == [], "both are whole, and one of them is in its place"
    assert state(home) in [(COMMIT, b"w"), (LATER, b"v")]


def test_what_a_cut_first_fetch_left_is_no_part_of_the_next_commit(tmp_path, monkeypatch):
    home = workspace(tmp_path, TAG)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fetching_checkpoints, "locate", breaking(None, interrupt, after=False))
        fetch_checkpoint(home, "e", hub=Hub(EARLIER_FILES))
    assert pinned_commit(home, "e") is None
    fetch_checkpoint(home, "e", hub=Hub({"open_clip_model.safetensors": b"v"}, newest=LATER))
    assert contents(home.fetched) == [
        f"{home.checkpoint('e').folder.name}/{name}"
        for name in ("fetched.json", "open_clip_config.json", "open_clip_model.safetensors")
    ]


@pytest.mark.parametrize("note", [{}, {"repository": "someone/else", "commit": COMMIT}])
def test_a_folder_of_unknown_origin_is_replaced_whole(tmp_path, note):
    home, folder = fetched_tag(tmp_path)
    (folder / "fetched.json").write_text(json.dumps(note))
    fetch_checkpoint(home, "e", hub=Hub({"open_clip_model.safetensors": b"v"}, newest=LATER))
    assert "vocab.json" not in contents(folder)
    assert state(home) == (LATER, b"v")


def test_a_damaged_or_foreign_file_is_mended_by_fetching_again(tmp_path):
    home, folder = fetched_tag(tmp_path)
    (folder / "open_clip_model.safetensors").write_bytes(b"W")
    (folder / "added_tokens.json").write_text("{}")
    fetch_checkpoint(home, "e", hub=Hub(EARLIER_FILES))
    assert state(home) == (COMMIT, b"w")
    assert "added_tokens.json" not in contents(folder)


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("encoder", {}),
        ("lvlm", {"lvlms": {"m": {"address": "hf-hub:org/name@fetched"}}}),
        ("scorer", {"scorers": {"m": {"kind": "classifier", "address": "hf-hub:org/name@fetched"}}}),
    ],
)
def test_a_hub_address_of_the_first_fetch_keeps_to_its_commit(kind, part, tmp_path):
    files = {"encoder": {"open_clip_config.json": b"{}", **EARLIER_FILES}, "lvlm": LLAVA, "scorer": ROBERTA}[kind]
    home = generative(tmp_path, **part) if part else workspace(tmp_path, "hf-hub:org/name@fetched")
    name = "m" if part else "e"
    folder = fetch_checkpoint(home, name, kind=kind, hub=Hub(files))
    again = Hub(files, newest=LATER)
    fetch_checkpoint(home, name, kind=kind, hub=again)
    assert again.asked == [("org/name", COMMIT)]
    assert pinned_commit(home, name, kind) == json.loads((folder / "fetched.json").read_text())["commit"] == COMMIT
    fetch_checkpoint(home, name, kind=kind, newest=True, hub=Hub(files, newest=LATER))
    assert pinned_commit(home, name, kind) == LATER


def test_an_address_with_a_commit_has_no_newest(tmp_path):
    home = workspace(tmp_path, HUB_ADDRESS)
    with pytest.raises(CheckpointError, match="names its commit, and no other is fetched"):
        fetch_checkpoint(home, "e", newest=True, hub=Hub({}))
    assert pinned_commit(home, "e") is None
