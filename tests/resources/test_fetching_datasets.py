"""Fetching datasets, with a hub that is a folder: pinned, whole or not there; what must be asked for is explained."""

import json
import os
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from unittest.mock import patch

import pytest
from hub_of_files import contents
from huggingface_hub._local_folder import write_download_metadata  # what the client notes of each file

from orchestration import command_line
from plumbline.datasets.registry import reader_names
from plumbline.datasets.sources import dataset_folder, obtaining, parse_dataset_address
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError, DatasetError
from resources.checkout import PROJECT
from resources.fetching import Wanted, fetchable, wanted
from resources.fetching_datasets import extract_dataset, fetch_dataset
from resources.workspace import Workspace

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = f"hf-hub:datasets/Intel/SocialCounterfactuals@{COMMIT}"
FILES = {
    "data/train-00000-of-00001.parquet": b"p",
    "README.md": b"read me",
    "load.py": b"import os",
    "data/evil.pkl": b"x",
    "captions.csv": b"c",
}


class Hub:
    """A hub with one repository of data; `breaks` after the first file that it gives."""

    def __init__(self, files: dict[str, bytes], *, breaks: bool = False):
        self.files, self.breaks, self.asked = files, breaks, []
        self.gives: str | None = None  # files of this commit, whatever it is asked for

    def snapshot_download(self, repository, *, repo_type, revision, local_dir, allow_patterns):
        self.asked.append((repository, repo_type, revision))
        for name, content in self.files.items():
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                (Path(local_dir) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(local_dir) / name).write_bytes(content)
                write_download_metadata(Path(local_dir), name, self.gives or revision, "etag")
                (Path(local_dir) / ".cache/notes").write_text("for going on")
                if self.breaks:
                    raise OSError("connection reset")


def workspace(tmp_path, roots: dict[str, str], *, reader="socialcounterfactuals", encoders=()):
    datasets = {name: {"reader": reader, "root": root} for name, root in roots.items()}
    addresses = {name: {"address": f"hf-hub:o/n@{COMMIT}"} for name in ("labeller", *encoders)}
    content = {"labeller": "labeller", "datasets": datasets, "encoders": addresses, "audit": []}
    (tmp_path / "audit.yaml").write_text(json.dumps(content))
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")


def test_files_of_another_commit_are_refused_and_not_kept(tmp_path):
    home, hub = workspace(tmp_path, {"d": ADDRESS}), Hub(FILES)
    hub.gives = "b" * 40
    with pytest.raises(DatasetError, match=rf"files of another commit[\s\S]*{'b' * 40}[\s\S]*{COMMIT}"):
        fetch_dataset(home, "d", hub=hub)
    assert not [path for path in home.home.rglob("*") if path.is_file()]
    hub.gives = None
    assert contents(fetch_dataset(home, "d", hub=hub)) == ["data/train-00000-of-00001.parquet"]


def test_a_hub_dataset_comes_at_its_revision_with_the_files_that_its_reader_reads(tmp_path):
    home, hub = workspace(tmp_path, {"d": ADDRESS}), Hub(FILES)
    folder = fetch_dataset(home, "d", hub=hub)
    assert hub.asked == [("Intel/SocialCounterfactuals", "dataset", COMMIT)]
    assert folder == dataset_folder(ADDRESS, home.home)
    assert contents(folder) == ["data/train-00000-of-00001.parquet"]
    note = json.loads(folder.with_name(f"{folder.name}.fetched.json").read_text())
    digests = {"data/train-00000-of-00001.parquet": digest_bytes(b"p")}
    assert note == {
        "repository": "Intel/SocialCounterfactuals", "commit": COMMIT, "licence": "MIT", "sha256": digests
    }  # fmt: skip
    assert fetch_dataset(home, "d", hub=hub) == folder
    assert len(hub.asked) == 1, "what is there is not fetched again"


def test_another_repository_gives_tables_and_pictures_and_never_code(tmp_path):
    home = workspace(tmp_path, {"d": f"hf-hub:datasets/o/n@{COMMIT}"})
    folder = fetch_dataset(home, "d", hub=Hub(FILES))
    assert contents(folder) == ["captions.csv", "data/train-00000-of-00001.parquet"]
    note = json.loads(folder.with_name(f"{folder.name}.fetched.json").read_text())
    assert note["licence"] == "see the dataset's page"


def test_half_a_download_is_never_taken_for_the_dataset_and_is_gone_on_with(tmp_path):
    home = workspace(tmp_path, {"d": ADDRESS})
    with pytest.raises(DatasetError, match=r"did not give `d`[\s\S]*connection reset[\s\S]*resumes"):
        fetch_dataset(home, "d", hub=Hub(FILES, breaks=True))
    assert not dataset_folder(ADDRESS, home.home).exists()
    assert fetch_dataset(home, "d", hub=Hub(FILES)).is_dir()
    assert not list((home.home / "datasets").glob(".*"))


def test_a_repository_without_a_wanted_file_is_refused(tmp_path):
    home = workspace(tmp_path, {"d": ADDRESS})
    with pytest.raises(DatasetError, match="none of the wanted files"):
        fetch_dataset(home, "d", hub=Hub({"load.py": b"import os"}))
    assert not dataset_folder(ADDRESS, home.home).exists()


@pytest.mark.parametrize(
    "address",
    [
        "hf-hub:datasets/o/n",
        "hf-hub:datasets/o/n@main",
        f"hf-hub:datasets/o/n@{COMMIT[:39]}",
        f"hf-hub:datasets/o/n@{COMMIT.upper()}",
        f"hf-hub:o/n@{COMMIT}",
        f"hf-hub:datasets/../n@{COMMIT}",
        f"hf-hub:datasets/o/..@{COMMIT}",
        f"hf-hub:datasets/o/n/x@{COMMIT}",
    ],
)
def test_an_address_names_a_repository_of_data_and_a_commit(address):
    with pytest.raises(DatasetError, match="hf-hub:datasets/ORG/NAME@COMMIT"):
        parse_dataset_address(address)


def test_the_folder_of_an_address_lies_below_the_home(tmp_path):
    assert dataset_folder(parse_dataset_address(ADDRESS), tmp_path) == (
        tmp_path / "datasets" / f"Intel--SocialCounterfactuals--{COMMIT}"
    )


def test_a_planted_dataset_needs_no_fetching(tmp_path):
    with pytest.raises(DatasetError, match="needs no fetching"):
        fetch_dataset(workspace(tmp_path, {"d": "planted:fairface"}), "d", hub=Hub({}))


@pytest.mark.parametrize("reader", reader_names())
def test_every_reader_says_where_its_data_comes_from(reader):
    text = obtaining(reader).instructions("faces")
    assert "licence:" in text and "expected:" in text and "1. " in text
    assert ("--archive" in text) == (obtaining(reader).hub is None)


def test_an_unknown_reader_is_an_error():
    with pytest.raises(ConfigError, match="nothing is known"):
        obtaining("imagenet")


@pytest.mark.parametrize("reader", ["celeba", "utkface", "idenprof", "pata", "causalface", "neutral"])
def test_what_must_be_asked_for_is_never_downloaded(reader, tmp_path):
    home = workspace(tmp_path, {"d": "faces"}, reader=reader)
    assert fetch_dataset(home, "d", hub=None) is None
    assert obtaining(reader).hub is None


def test_an_archive_goes_into_the_folder_that_the_audit_file_names(tmp_path):
    home = workspace(tmp_path, {"d": str(tmp_path / "faces")}, reader="utkface")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("UTKFace/1_0_0_1.jpg", b"x")
    folder, extracted = extract_dataset(home, "d", tmp_path / "a.zip")
    assert (folder, extracted.files) == (tmp_path / "faces", 1)
    assert contents(folder) == ["UTKFace/1_0_0_1.jpg"]


@pytest.mark.parametrize("root", ["planted:utkface", ADDRESS])
def test_an_archive_needs_a_folder_of_its_own(root, tmp_path):
    with pytest.raises(DatasetError, match="own folder"):
        extract_dataset(workspace(tmp_path, {"d": root}), "d", tmp_path / "a.zip")


def test_a_name_is_an_encoder_or_a_dataset_and_both_is_said(tmp_path):
    home = workspace(tmp_path, {"d": "x", "both": "x"}, encoders=["e", "both"])
    assert wanted(home, "d") == wanted(home, "dataset:d") == Wanted("dataset", "d")
    assert wanted(home, "e") == wanted(home, "encoder:e") == Wanted("encoder", "e")
    assert wanted(home, "dataset:both") == Wanted("dataset", "both")
    with pytest.raises(ConfigError, match="encoder:both or dataset:both"):
        wanted(home, "both")
    for unknown in ("f", "encoder:d", "dataset:", ""):
        with pytest.raises(ConfigError, match="encoders: labeller, e, both; datasets: d, both"):
            wanted(home, unknown)


def test_the_list_tells_what_is_there_and_how_the_rest_comes(tmp_path):
    home = workspace(tmp_path, {"hub": ADDRESS, "own": "faces", "world": "planted:fairface"}, encoders=["e"])
    fetch_dataset(home, "hub", hub=Hub(FILES))
    lines = {line.wanted.id: line for line in fetchable(home)}
    assert list(lines) == ["labeller", "e", "hub", "own"]
    assert [lines[name].there for name in lines] == [False, False, True, False]
    assert lines["own"].how == "to be asked for; licence: MIT"


def command(home: Workspace, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PLUMBLINE_AUDIT": str(home.audit_path), "PLUMBLINE_HOME": str(home.home)}
    return subprocess.run(
        [sys.executable, "-m", "orchestration", "fetch", *arguments],
        cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture
def command_here(monkeypatch, capsys):
    """Return what `command` does, in this process: that it also works in one of its own takes one start to show."""

    def run(home: Workspace, *arguments: str) -> subprocess.CompletedProcess:
        monkeypatch.setenv("PLUMBLINE_AUDIT", str(home.audit_path))
        monkeypatch.setenv("PLUMBLINE_HOME", str(home.home))
        monkeypatch.setattr(sys, "argv", ["plumbline", "fetch", *arguments])
        # What it sets for its own process and those that it starts is no matter of later tests.
        with patch.dict(os.environ), pytest.raises(SystemExit) as ended:
            command_line.main()
        return subprocess.CompletedProcess(arguments, ended.value.code or 0, *capsys.readouterr())

    return run


def test_the_command_lists_explains_and_extracts(tmp_path, command_here):
    home = workspace(tmp_path, {"faces": str(tmp_path / "faces")}, reader="celeba")
    listed = command(home)
    assert listed.returncode == 0 and "to be asked for" in listed.stdout, listed.stderr
    explained = command_here(home, "faces")
    assert explained.returncode == 0, explained.stderr
    assert "non-commercial research only" in explained.stdout
    assert "plumbline fetch faces --archive FILE" in explained.stdout
    newest = command_here(home, "faces", "--newest")
    assert newest.returncode == 2 and "names its commit" in newest.stderr
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("list_attr_celeba.txt", b"0")
    extracted = command_here(home, "faces", "--archive", str(tmp_path / "a.zip"))
    assert extracted.returncode == 0, extracted.stderr
    assert contents(tmp_path / "faces") == ["list_attr_celeba.txt"]
    again = command_here(home, "faces", "--archive", str(tmp_path / "a.zip"))
    assert again.returncode == 2 and "holds something already" in again.stderr
    assert "Traceback" not in again.stderr
