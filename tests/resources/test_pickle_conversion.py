"""Pickles of a checkpoint: converted once in a process that can do no harm, and kept nowhere."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_of_files import CLIP, HUB_ADDRESS, KEPT, Hub, contents, pickled, workspace
from safetensors.torch import load_file

from plumbline.checkpoints import conversion as bin_conversion
from plumbline.checkpoints.conversion import convert_to_safetensors
from plumbline.digests import digest_bytes
from plumbline.errors import CheckpointError
from resources.checkout import PROJECT
from resources.fetching_checkpoints import fetch_checkpoint


def test_a_pickle_is_converted_once_with_both_digests_and_kept_nowhere(tmp_path):
    tied = torch.arange(6.0).reshape(2, 3)
    weights = {"a": tied, "b": tied, "turned": tied.t(), "half": torch.ones(2, dtype=torch.bfloat16)}
    home, bin_file = workspace(tmp_path, HUB_ADDRESS), pickled(weights)
    hub = Hub(CLIP | {"pytorch_model.bin": bin_file})
    folder = fetch_checkpoint(home, "e", hub=hub)
    assert contents(home.fetched) == [f"{folder.name}/{name}" for name in KEPT]
    loaded = load_file(folder / "model.safetensors")
    assert set(loaded) == set(weights)
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    assert loaded["half"].dtype == torch.bfloat16
    converted = json.loads((folder / "fetched.json").read_text())["converted"]
    assert converted["from"] == {"name": "pytorch_model.bin", "sha256": digest_bytes(bin_file)}
    assert converted["to"] == {"name": "model.safetensors", "sha256": home.checkpoint("e").weights_sha256}

    before = (folder / "fetched.json").read_bytes()
    again = Hub(hub.files)
    fetch_checkpoint(home, "e", hub=again)
    assert "pytorch_model.bin" not in again.given, "converted once"
    assert (folder / "fetched.json").read_bytes() == before


@pytest.mark.usefixtures("converted_here")
def test_an_open_clip_training_checkpoint_is_unwrapped(tmp_path):
    state = {"epoch": 3, "name": "run", "state_dict": {"module.logit_scale": torch.tensor(4.6)}}
    hub = Hub({"open_clip_config.json": b"{}", "open_clip_pytorch_model.bin": pickled(state)})
    folder = fetch_checkpoint(workspace(tmp_path, HUB_ADDRESS), "e", hub=hub)
    assert contents(folder) == ["fetched.json", "open_clip_config.json", "open_clip_model.safetensors"]
    assert load_file(folder / "open_clip_model.safetensors") == {"logit_scale": torch.tensor(4.6)}


class Hostile:
    """What a pickle can be: a command that runs when it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_a_hostile_pickle_is_refused_and_nothing_of_it_runs(tmp_path):
    mark, home = tmp_path / "ran", workspace(tmp_path, HUB_ADDRESS)
    hostile = pickled({"a": torch.ones(2), "b": Hostile(mark)})
    with pytest.raises(CheckpointError, match=r"not converted to safetensors[\s\S]*system"):
        fetch_checkpoint(home, "e", hub=Hub(CLIP | {"pytorch_model.bin": hostile}))
    assert not mark.exists()
    # But for the notes of the hub's client, with which the same commit is gone on with.
    names = (name for name in contents(home.fetched) if "/.cache/huggingface/" not in name)
    left = [name for name in names if not name.endswith((".json", ".txt"))]
    assert left == [], "neither the pickle nor half a conversion"


@pytest.mark.parametrize("kind", ["bare pickle", "legacy torch file", "inside a tensor's name"])
def test_no_way_of_writing_a_pickle_makes_it_run(kind, tmp_path):
    """In this process, without the walls around the converting one: reading alone must refuse."""
    mark, source = tmp_path / "ran", tmp_path / "m.bin"
    if kind == "bare pickle":
        source.write_bytes(pickle.dumps(Hostile(mark), protocol=2))
    elif kind == "legacy torch file":
        torch.save({"b": Hostile(mark)}, source, _use_new_zipfile_serialization=False)
    else:
        torch.save({(Hostile(mark),): torch.ones(2)}, source)
    with pytest.raises(pickle.UnpicklingError, match="system"):
        bin_conversion._convert(source, tmp_path / "m.safetensors")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([torch.ones(2)], "list instead of names with tensors"),
        ({}, "dict instead of names with tensors"),
        ({"a": torch.ones(2), "b": "text"}, "str under 'b' instead of a dense tensor"),
        ({1: torch.ones(2)}, "the name 1,"),
        ({"__metadata__": torch.ones(2)}, "the name '__metadata__',"),
        ({"a": torch.ones(2).to_sparse()}, "a sparse tensor under 'a'"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "a complex tensor under 'a'"),
        ({"a": torch.ones(2, device="meta")}, "a tensor without content under 'a'"),
        ({"a": torch.ones(1).expand(3_000_000)}, "tensors of 12000000 bytes in a file"),
        ({"state_dict": {"a": torch.ones(2), "model": {"b": torch.ones(2)}}}, "dict under 'model'"),
    ],
)
def test_what_is_not_named_dense_tensors_is_not_converted(content, said, tmp_path):
    (tmp_path / "m.bin").write_bytes(pickled(content))
    with pytest.raises(ValueError, match=said):
        bin_conversion._convert(tmp_path / "m.bin", tmp_path / "m.safetensors")
    assert contents(tmp_path) == ["m.bin"]


@pytest.mark.usefixtures("converted_here")
def test_a_damaged_pickle_is_a_clear_error(tmp_path):
    (tmp_path / "m.bin").write_bytes(pickled({"a": torch.ones(99)})[:-40])
    with pytest.raises(CheckpointError, match=r"not converted[\s\S]*found: +\w+Error"):
        convert_to_safetensors(tmp_path / "m.bin", tmp_path / "m.safetensors")
    assert contents(tmp_path) == ["m.bin"]


def test_the_converting_process_opens_no_socket_and_starts_no_program():
    code = """
import _posixsubprocess, os, pickle, socket, subprocess
from plumbline.checkpoints.conversion import _build_walls
straight = pickle.dumps(_posixsubprocess.fork_exec)
_build_walls()
calls = (os.fork, socket.socket, _posixsubprocess.fork_exec, pickle.loads(straight))
for attempt in (lambda: os.system("true"), lambda: subprocess.run(["true"]), *calls):
    try:
        attempt()
    except PermissionError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout.count("is not allowed while weights are converted") == 6, done.stderr


def test_the_memory_of_a_conversion_is_that_of_the_machine_and_bounded(monkeypatch):
    values = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 20}
    monkeypatch.setattr(os, "sysconf", values.__getitem__)
    assert bin_conversion._memory_limit() == 4 << 30
    values["SC_PHYS_PAGES"] = 1 << 30
    assert bin_conversion._memory_limit() == 24 << 30
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to")):
        assert bin_conversion._reason(error).startswith("it needs more memory than the 26 GB")


@pytest.mark.parametrize(("code", "said"), [(-9, "by SIGKILL"), (7, "ended with 7 and said nothing")])
def test_a_conversion_that_the_system_ends_is_a_clear_error(code, said, tmp_path, monkeypatch):
    def ended(command, **_):
        return subprocess.CompletedProcess(command, code, "", "")

    monkeypatch.setattr(subprocess, "run", ended)
    (tmp_path / "m.bin").write_bytes(b"weights")
    with pytest.raises(CheckpointError, match=said):
        convert_to_safetensors(tmp_path / "m.bin", tmp_path / "m.safetensors")


def test_a_conversion_that_never_ends_is_a_clear_error(tmp_path, monkeypatch):
    def never(command, **_):
        raise subprocess.TimeoutExpired(command, 3600)

    monkeypatch.setattr(subprocess, "run", never)
    (tmp_path / "m.bin").write_bytes(b"weights")
    with pytest.raises(CheckpointError, match=r"took too long[\s\S]*m.bin[\s\S]*3600 s[\s\S]*expected[\s\S]*do:"):
        convert_to_safetensors(tmp_path / "m.bin", tmp_path / "m.safetensors")
