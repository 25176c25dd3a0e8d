"""What pip installed is held against the locked digests."""

import json
import tomllib

from documentation.hashes import CONSTRAINTS, HASHES, check, locked, normal, unlocked
from resources.checkout import PROJECT


def installed(name, version, *, sha256=None, **source):
    archive = {"archive_info": {"hashes": {"sha256": sha256}}} if sha256 else {}
    return {"metadata": {"name": name, "version": version}, "download_info": archive | source}


def test_every_pinned_version_is_locked_with_its_files():
    lock = locked(HASHES.read_text("utf-8"))
    pinned = [line.split("==") for line in CONSTRAINTS.read_text("utf-8").splitlines() if "==" in line]
    missing = [f"{name}=={version}" for name, version in pinned if not lock.get((normal(name), version))]
    assert not missing, "make hashes"


def test_every_locked_name_is_pinned():
    """Whatever pip may install on any platform, such as CUDA's libraries: a release of today is not in the lock."""
    pins = dict(line.split("==") for line in CONSTRAINTS.read_text("utf-8").split())
    pinned = {(normal(name), version) for name, version in pins.items()}
    assert set(locked(HASHES.read_text("utf-8"))) == pinned


def test_nothing_that_the_project_asks_for_is_left_out():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = project["dependencies"] + [each for extra in project["optional-dependencies"].values() for each in extra]
    names = {normal(each.split(">")[0].split("[")[0]) for each in asked} - {"plumbline"}
    assert names <= {name for name, _ in locked(HASHES.read_text("utf-8"))}


def test_addresses_stand_nowhere():
    assert "://" not in HASHES.read_text("utf-8")


def test_other_bytes_and_unknown_distributions_are_refused_and_another_build_is_named():
    lock = locked(
        "a-b==1.0 ; sys_platform == 'linux' \\\n    --hash=sha256:"
        + "1" * 64
        + "\ntorch==2.0 \\\n    --hash=sha256:"
        + "2" * 64
    )
    report = {
        "install": [
            installed("A_b", "1.0", sha256="1" * 64),
            installed("a.b", "1.0", sha256="3" * 64),
            installed("torch", "2.0+cpu", sha256="4" * 64),
            installed("a-b", "1.1", sha256="1" * 64),
            installed("stranger", "1", sha256="1" * 64),
            installed("of-a-repository", "1", vcs_info={}),
            installed("of-a-folder", "1", dir_info={}),
            installed("plumbline", "0.6.0", dir_info={"editable": True}),
        ]
    }  # fmt: skip
    told = list(unlocked(report, lock))
    assert [refused for _, refused in told] == [True, False, True, True, True, True]
    assert [words.split(" is ")[0].split(" has ")[0] for words, _ in told] == [
        "a-b 1.0", "torch 2.0+cpu", "a-b 1.1", "stranger 1", "of-a-repository 1", "of-a-folder 1",
    ]  # fmt: skip


def test_an_environment_with_other_bytes_is_not_to_be_used(tmp_path, capsys):
    report = tmp_path / "installed.json"
    for nothing in (None, "", '{"install": []}'):  # a package may have written over what pip wrote
        if nothing is not None:
            report.write_text(nothing)
        assert check(report) == 1
        assert "pip did not tell what it installed" in capsys.readouterr().err
    report.write_text(json.dumps({"install": [installed("numpy", "0.0.1", sha256="0" * 64)]}))
    assert check(report) == 1
    assert "numpy 0.0.1 is not in hashes.txt" in capsys.readouterr().err
