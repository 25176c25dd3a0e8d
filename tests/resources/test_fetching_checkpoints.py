"""Fetching a checkpoint, with a hub that is a folder: pinned, safetensors only, loadable by the one way there is."""

import io
import json
import os
import pickle
import socket
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from plumbline import bin_conversion
from plumbline.bin_conversion import convert_to_safetensors
from plumbline.digests import digest_bytes
from plumbline.errors import CheckpointError
from resources import fetching_aside, fetching_checkpoints
from resources.fetching_checkpoints import fetch_checkpoint, pinned_commit
from resources.places import PROJECT, Places

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB_ADDRESS = f"hf-hub:o/n@{COMMIT}"


class Hub:
    """A hub with one repository of the given files."""

    def __init__(self, files: dict[str, bytes], *, error: Exception | None = None, newest: str = COMMIT):
        self.files, self.error, self.newest, self.asked, self.given = files, error, newest, [], []

    def model_info(self, repository, revision=None):
        self.asked.append((repository, revision))
        if self.error:
            raise self.error
        siblings = [SimpleNamespace(rfilename=name) for name in self.files]
        return SimpleNamespace(sha=revision or self.newest, siblings=siblings)

    def snapshot_download(self, repository, *, revision, local_dir, allow_patterns, repo_type=None):
        if self.error:
            raise self.error
        self.asked.append((repository, revision, repo_type))
        for name, content in self.files.items():
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                self.given.append(name)
                (Path(local_dir) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(local_dir) / name).write_bytes(content)


def places(tmp_path, address, **entry):
    tmp_path.mkdir(exist_ok=True)
    encoders = {"e": {"address": address, **entry}}
    (tmp_path / "audit.yaml").write_text(
        json.dumps({"labeller": "e", "datasets": {}, "encoders": encoders, "audit": []})
    )
    return Places(audit_path=tmp_path / "audit.yaml", home=tmp_path)


def test_a_hub_checkpoint_comes_at_its_revision_with_digests_and_without_pickles(tmp_path):
    files = {
        "open_clip_model.safetensors": b"w",
        "open_clip_config.json": b"{}",
        "pytorch_model.bin": b"pickle",
        "evil.py": b"import os",
    }
    hub, home = Hub(files), places(tmp_path, f"hf-hub:org/name@{COMMIT}")
    folder = fetch_checkpoint(home, "e", hub=hub)
    assert hub.asked == [("org/name", COMMIT), ("org/name", COMMIT, None)]
    assert sorted(p.name for p in folder.iterdir()) == [
        "fetched.json", "open_clip_config.json", "open_clip_model.safetensors",
    ]  # fmt: skip
    note = json.loads((folder / "fetched.json").read_text())
    assert note["commit"] == COMMIT
    assert note["sha256"] == {
        "open_clip_config.json": digest_bytes(b"{}"),
        "open_clip_model.safetensors": digest_bytes(b"w"),
    }
    assert home.checkpoint("e").weights_sha256 == digest_bytes(b"w")


def test_a_tag_of_open_clip_becomes_a_local_folder_with_its_own_preprocessing(tmp_path):
    hub = Hub({"open_clip_model.safetensors": b"w"})
    folder = fetch_checkpoint(places(tmp_path, "ViT-B-32-quickgelu/openai"), "e", hub=hub)
    config = json.loads((folder / "open_clip_config.json").read_text())
    assert hub.asked[0][0] == "timm/vit_base_patch32_clip_224.openai"
    assert config["model_cfg"]["quick_gelu"] is True
    assert config["preprocess_cfg"]["mean"][0] == pytest.approx(0.48145466)


def test_a_tag_keeps_the_commit_of_its_first_fetch_until_the_newest_is_asked_for(tmp_path):
    home, later = places(tmp_path, "ViT-B-32-quickgelu/openai"), "f" * 40
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
    assert (
        pinned_commit(home, "e") == COMMIT and (folder / "open_clip_model.safetensors").read_bytes() == b"w"
    )

    newer = Hub({"open_clip_model.safetensors": b"v"}, newest=later)
    fetch_checkpoint(home, "e", newest=True, hub=newer)
    assert [asked[1] for asked in newer.asked] == [None, later]
    assert pinned_commit(home, "e") == later
    assert contents(folder) == ["fetched.json", "open_clip_config.json", "open_clip_model.safetensors"], (
        "nothing of the commit before"
    )


LATER = "f" * 40
TAG = "ViT-B-32-quickgelu/openai"
EARLIER_FILES = {"open_clip_model.safetensors": b"w", "vocab.json": b"{}"}


def fetched_tag(tmp_path):
    home = places(tmp_path, TAG)
    return home, fetch_checkpoint(home, "e", hub=Hub(EARLIER_FILES))


def state(home):
    """Return the pinned commit and the weights that an audit loads."""
    return pinned_commit(home, "e"), home.checkpoint("e").weights.read_bytes()


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
    home = places(tmp_path, TAG)
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
    files = {"encoder": {"open_clip_config.json": b"{}", **EARLIER_FILES}, "lvlm": LLAVA, "scorer": ROBERTA}[
        kind
    ]
    home = generative(tmp_path, **part) if part else places(tmp_path, "hf-hub:org/name@fetched")
    name = "m" if part else "e"
    folder = fetch_checkpoint(home, name, kind=kind, hub=Hub(files))
    again = Hub(files, newest=LATER)
    fetch_checkpoint(home, name, kind=kind, hub=again)
    assert again.asked == [("org/name", COMMIT)]
    assert (
        pinned_commit(home, name, kind)
        == json.loads((folder / "fetched.json").read_text())["commit"]
        == COMMIT
    )
    fetch_checkpoint(home, name, kind=kind, newest=True, hub=Hub(files, newest=LATER))
    assert pinned_commit(home, name, kind) == LATER


def test_an_address_with_a_commit_has_no_newest(tmp_path):
    home = places(tmp_path, HUB_ADDRESS)
    with pytest.raises(CheckpointError, match="names its commit, and no other is fetched"):
        fetch_checkpoint(home, "e", newest=True, hub=Hub({}))
    assert pinned_commit(home, "e") is None


def test_weights_of_another_activation_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="ViT-B-32-quickgelu/openai"):
        fetch_checkpoint(places(tmp_path, "ViT-B-32/openai"), "e", hub=Hub({}))


def test_a_repository_without_safetensors_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no safetensors weights, and none that can be converted"):
        fetch_checkpoint(places(tmp_path, HUB_ADDRESS), "e", hub=Hub({"open_clip_config.json": b"{}"}))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"open_clip_model.safetensors": b"w"}, "no checkpoint of open_clip or transformers"),
        (
            {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"w"},
            "no family that can be audited",
        ),
        (
            {
                "config.json": b'{"auto_map": {"AutoModel": "modeling.Model"}, "model_type": "clip"}',
                "model.safetensors": b"w",
            },
            "code of its own",
        ),
        ({"config.json": b"{}", "pytorch_model-00001-of-00002.bin": b"w"}, "none that can be converted"),
        (
            {
                "open_clip_model.safetensors": b"w",
                "open_clip_config.json": b'{"model_cfg": {"text_cfg": {"hf_model_name": "roberta-base"}}}',
            },
            "hf_model_name: roberta-base",
        ),
    ],
)
def test_what_could_not_be_loaded_from_disk_is_said_when_it_is_fetched(tmp_path, files, said):
    home = places(tmp_path, HUB_ADDRESS)
    with pytest.raises(CheckpointError, match=said):
        fetch_checkpoint(home, "e", hub=Hub(files))
    assert not list(home.fetched.glob("*/fetched.json"))


def test_an_unreachable_hub_is_a_clear_error_of_the_command_line(tmp_path):
    """With the real client, which the command line lets go online, and a port at which nobody listens."""
    home = places(tmp_path, HUB_ADDRESS)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        environment = {
            **os.environ,
            "PLUMBLINE_AUDIT": str(home.audit_path),
            "PLUMBLINE_HOME": str(home.home),
            "HF_ENDPOINT": f"http://127.0.0.1:{closed.getsockname()[1]}",
            "HF_HUB_OFFLINE": "1",
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "orchestration", "fetch", "e"],
            cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "the hub did not give `e`" in done.stderr
    assert "ConnectError" in done.stderr and "check the network" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("xet: no route to host")])
def test_a_hub_that_breaks_off_is_a_clear_error(tmp_path, error):
    with pytest.raises(CheckpointError, match=r"did not give[\s\S]*no route to host"):
        fetch_checkpoint(places(tmp_path, HUB_ADDRESS), "e", hub=Hub({}, error=error))


def test_a_full_disk_is_not_the_hubs_fault(tmp_path):
    error = OSError(28, "No space left on device", str(tmp_path / "checkpoints"))
    with pytest.raises(
        CheckpointError, match=r"could not be written[\s\S]*where: +/[\s\S]*checkpoints[\s\S]*free some"
    ):
        fetch_checkpoint(places(tmp_path, HUB_ADDRESS), "e", hub=Hub({}, error=error))


@pytest.mark.parametrize(
    ("address", "said"), [("local-dir:x", "needs no fetching"), ("ViT-B-32/none", "no such")]
)
def test_what_cannot_be_fetched_says_so(tmp_path, address, said):
    with pytest.raises(CheckpointError, match=said):
        fetch_checkpoint(places(tmp_path, address), "e", hub=Hub({}))


CLIP = {
    "config.json": b'{"model_type": "clip"}',
    "preprocessor_config.json": b"{}",
    "tokenizer.json": b"{}",
    "vocab.json": b"{}",
    "merges.txt": b"",
    "README.md": b"read me",
    "modeling_clip.py": b"import os",
    "flax_model.msgpack": b"x",
    "training_args.bin": b"pickle",
    "onnx/model.onnx": b"x",
}
KEPT = ["config.json", "fetched.json", "merges.txt", "model.safetensors", "preprocessor_config.json", "tokenizer.json",
        "vocab.json"]  # fmt: skip


def pickled(content) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def contents(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_a_transformers_repository_gives_settings_and_safetensors_only(tmp_path):
    home = places(tmp_path, HUB_ADDRESS)
    hub = Hub(CLIP | {"model.safetensors": b"w", "pytorch_model.bin": b"pickle"})
    assert contents(fetch_checkpoint(home, "e", hub=hub)) == KEPT
    assert "pytorch_model.bin" not in hub.given
    assert home.checkpoint("e").weights_sha256 == digest_bytes(b"w")


def test_a_family_named_in_the_audit_file_decides_where_both_libraries_are_there(tmp_path):
    both = CLIP | {
        "model.safetensors": b"w",
        "open_clip_config.json": b"{}",
        "open_clip_model.safetensors": b"o",
    }
    assert "open_clip_model.safetensors" in contents(
        fetch_checkpoint(places(tmp_path / "a", HUB_ADDRESS), "e", hub=Hub(both))
    )
    named = places(tmp_path / "b", HUB_ADDRESS, family="clip")
    assert contents(fetch_checkpoint(named, "e", hub=Hub(both))) == KEPT


def test_encoders_of_both_libraries_share_a_folder_of_one_address(tmp_path):
    both = CLIP | {
        "pytorch_model.bin": pickled({"a": torch.ones(2)}),
        "open_clip_config.json": b"{}",
        "open_clip_model.safetensors": b"o",
    }
    folder = fetch_checkpoint(places(tmp_path, HUB_ADDRESS, family="clip"), "e", hub=Hub(both))
    assert fetch_checkpoint(places(tmp_path, HUB_ADDRESS), "e", hub=Hub(both)) == folder
    assert places(tmp_path, HUB_ADDRESS).checkpoint("e").family == "open_clip"
    assert places(tmp_path, HUB_ADDRESS, family="clip").checkpoint("e").family == "clip"
    again = Hub(both)
    fetch_checkpoint(places(tmp_path, HUB_ADDRESS, family="clip"), "e", hub=again)
    assert again.given == []
    assert json.loads((folder / "fetched.json").read_text())["converted"]["to"]["name"] == "model.safetensors"


def test_a_pickle_is_converted_once_with_both_digests_and_kept_nowhere(tmp_path):
    tied = torch.arange(6.0).reshape(2, 3)
    weights = {"a": tied, "b": tied, "turned": tied.t(), "half": torch.ones(2, dtype=torch.bfloat16)}
    home, bin_file = places(tmp_path, HUB_ADDRESS), pickled(weights)
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


def test_an_open_clip_training_checkpoint_is_unwrapped(tmp_path):
    state = {"epoch": 3, "name": "run", "state_dict": {"module.logit_scale": torch.tensor(4.6)}}
    hub = Hub({"open_clip_config.json": b"{}", "open_clip_pytorch_model.bin": pickled(state)})
    folder = fetch_checkpoint(places(tmp_path, HUB_ADDRESS), "e", hub=hub)
    assert contents(folder) == ["fetched.json", "open_clip_config.json", "open_clip_model.safetensors"]
    assert load_file(folder / "open_clip_model.safetensors") == {"logit_scale": torch.tensor(4.6)}


class Hostile:
    """What a pickle can be: a command that runs when it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_a_hostile_pickle_is_refused_and_nothing_of_it_runs(tmp_path):
    mark, home = tmp_path / "ran", places(tmp_path, HUB_ADDRESS)
    hostile = pickled({"a": torch.ones(2), "b": Hostile(mark)})
    with pytest.raises(CheckpointError, match=r"not converted to safetensors[\s\S]*system"):
        fetch_checkpoint(home, "e", hub=Hub(CLIP | {"pytorch_model.bin": hostile}))
    assert not mark.exists()
    left = [name for name in contents(home.fetched) if not name.endswith((".json", ".txt"))]
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


@pytest.mark.parametrize("content", [pickled({"a": torch.ones(99)})[:-40]])
def test_a_damaged_pickle_is_a_clear_error(content, tmp_path):
    (tmp_path / "m.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"not converted[\s\S]*found: +\w+Error"):
        convert_to_safetensors(tmp_path / "m.bin", tmp_path / "m.safetensors")
    assert contents(tmp_path) == ["m.bin"]


def test_the_converting_process_opens_no_socket_and_starts_no_program():
    code = """
import os, socket, subprocess
from plumbline.bin_conversion import _build_walls
_build_walls()
for attempt in (lambda: os.system("true"), socket.socket, lambda: subprocess.run(["true"]), os.fork):
    try:
        attempt()
    except PermissionError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout.count("is not allowed while weights are converted") == 4, done.stderr


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
    with pytest.raises(
        CheckpointError, match=r"took too long[\s\S]*m.bin[\s\S]*3600 s[\s\S]*expected[\s\S]*do:"
    ):
        convert_to_safetensors(tmp_path / "m.bin", tmp_path / "m.safetensors")


LLAVA = {
    "config.json": json.dumps({"model_type": "llava", "text_config": {"model_type": "mistral"}}).encode(),
    "preprocessor_config.json": b"{}",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"USER: {{ messages }}",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
    "model-00001-of-00002.safetensors": b"w",
    "model-00002-of-00002.safetensors": b"x",
}
ROBERTA = {
    "config.json": json.dumps({"model_type": "roberta", "id2label": {"0": "toxicity"}}).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": b"w",
}


def generative(tmp_path, **parts) -> Places:
    tmp_path.mkdir(exist_ok=True)
    audit = {"labeller": "e", "datasets": {}, "encoders": {"e": {"address": "local-dir:x"}}, **parts}
    (tmp_path / "audit.yaml").write_text(json.dumps(audit))
    return Places(audit_path=tmp_path / "audit.yaml", home=tmp_path)


@pytest.mark.parametrize(
    ("kind", "files", "part"),
    [
        ("lvlm", LLAVA, {"lvlms": {"m": {"address": HUB_ADDRESS}}}),
        ("scorer", ROBERTA, {"scorers": {"m": {"kind": "classifier", "address": HUB_ADDRESS}}}),
    ],
)
def test_generative_models_and_scorers_come_whole_and_without_what_is_not_read(kind, files, part, tmp_path):
    hub, home = (
        Hub(files | {"pytorch_model.bin": b"pickle", "model.py": b"import os"}),
        generative(tmp_path, **part),
    )
    folder = fetch_checkpoint(home, "m", kind=kind, hub=hub)
    assert contents(folder) == sorted([*files, "fetched.json"])
    again = Hub(files)
    assert fetch_checkpoint(home, "m", kind=kind, hub=again) == folder and again.given == []


def test_a_generative_model_without_a_part_of_its_weights_is_refused_when_it_is_fetched(tmp_path):
    cut = {name: data for name, data in LLAVA.items() if not name.endswith("00002-of-00002.safetensors")}
    with pytest.raises(CheckpointError, match="1 of 2 parts of the weights"):
        fetch_checkpoint(
            generative(tmp_path, lvlms={"m": {"address": HUB_ADDRESS}}), "m", kind="lvlm", hub=Hub(cut)
        )


def test_an_endpoint_has_nothing_to_fetch(tmp_path):
    endpoint = {"urls": ["http://127.0.0.1:1/v1"], "model": "m"}
    home = generative(tmp_path, lvlms={"m": {"endpoint": endpoint}})
    with pytest.raises(CheckpointError, match="no checkpoint to fetch"):
        fetch_checkpoint(home, "m", kind="lvlm", hub=Hub({}))
