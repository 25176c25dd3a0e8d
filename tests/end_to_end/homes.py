"""Homes of their own for whole audits, run by the real command line in a process of its own."""

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import yaml
from forked import Command, server

from plumbline.world.folders import PLANTED, ensure
from resources.workspace import Workspace

AUDIT = {
    "title": "A small audit of the planted world",
    "labeller": "small-control-3k",
    "devices": 1,
    "storage": {"shard_rows": 256},
    "statistics": {"resamples": 1000, "permutations": 1000},
    "datasets": {
        "fairface": {
            "reader": "fairface",
            "root": "planted:fairface",
            "balance": {"race": [0.10, 0.20], "gender": [0.40, 0.60], "race_gender": [0.03, 0.12]},
        }
    },
    "encoders": {
        name: {"address": f"local-dir:plumbline/world/checkpoints/{name}"}
        for name in ("small-bazaar-3k", "small-control-3k")
    },
    # The others are tried on a smaller home.
    "mitigations": {"logit_adjustment": {"method": "logit_adjustment"}},
    # What every audit is tested on; that the other families go through the graph too is shown on a smaller home.
    "audit": [{"suites": ["trident", "trident_composite", "crime", "crime_pooled", "communion", "agency"]}],
}


@dataclass(frozen=True)
class Home:
    """A home with its audit file, and the command line on it."""

    folder: Path

    @property
    def workspace(self) -> Workspace:
        return Workspace(audit_path=self.folder / "audit.yaml", home=self.folder / "home")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PLUMBLINE_AUDIT": str(self.workspace.audit_path),
            "PLUMBLINE_HOME": str(self.workspace.home),
            "COLUMNS": "200",
        }

    def start(self, *arguments: str) -> Command:
        return server().start(arguments, self.environment)

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate()
        return process.returncode, output

    def shards(self) -> list[int]:
        """Forward passes behind each committed shard, of images and of texts."""
        manifests = self.workspace.home.glob("lake/embeddings/*/*.json")
        return [json.loads(path.read_text())["details"]["batches"] for path in manifests]

    def table_sha256(self) -> str:
        return self.workspace.lake.require("metric_table").sha256


def make_home(folder: Path, *, empty: bool = False, **changes) -> Home:
    """Write an audit file beside a home: an empty one, or one in which everything is that takes each home seconds.

    These are the stores, in which nothing has happened, and the planted folders of the audit file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.yaml").write_text(yaml.safe_dump({**AUDIT, **changes}, sort_keys=False))
    home = Home(folder)
    if not empty and "stores" in SHARED:
        furnish(home)
    return home


def furnish(home: Home) -> None:
    """Copy the shared stores into a new home, and link the planted folders of its audit file."""
    shutil.copytree(
        SHARED["stores"](), home.workspace.home, symlinks=True, ignore=shutil.ignore_patterns("world", "audit.lock")
    )
    roots = {entry["root"] for entry in yaml.safe_load(home.workspace.audit_path.read_text())["datasets"].values()}
    for root in roots:
        if root.startswith(PLANTED):
            planted = ensure(root.removeprefix(PLANTED), SHARED["planted"]()).parent
            copied = home.workspace.home / "world" / planted.name
            shutil.copytree(planted, copied, copy_function=os.link)


SHARED: dict[str, Callable[[], Path]] = {}
"""Where the folders are that all homes of a run begin with; without them a home is empty."""


def set_up_stores(folder: Path) -> None:
    """Make the stores of a home in a folder, as the first audit does: their migrations take seconds."""
    from orchestration.instance import opened

    made, before = make_home(folder, empty=True), dict(os.environ)
    try:
        with opened(made.workspace):
            pass
    finally:
        os.environ.clear()
        os.environ.update(before)
    # Of experiments MLflow notes where their files are.
    with closing(sqlite3.connect(made.workspace.home / "mlflow.db", isolation_level=None)) as store:
        store.execute("DELETE FROM experiment_tags")
        store.execute("DELETE FROM experiments")


def few_faces(folder: Path) -> str:
    """Link every fourth image of the planted UTKFace into a new folder, and return it."""
    whole = ensure("utkface", SHARED["planted"]())
    for path in sorted(p for p in whole.rglob("*") if p.is_file())[::4]:
        linked = folder / path.relative_to(whole)
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.hardlink_to(path)
    return str(folder)


def forward_passes(output: str) -> int:
    found = re.search(r"(\d+) forward passes", output)
    assert found, output
    return int(found.group(1))


def edited(home: Home, **changes) -> None:
    """Change settings of a home's audit file."""
    content = yaml.safe_load(home.workspace.audit_path.read_text())
    home.workspace.audit_path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
