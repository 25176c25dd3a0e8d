"""The small audit that everything is tried on: what a finished home holds, and homes in which something goes wrong."""

import base64
import contextlib
import hashlib
import os
import re
import shutil
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml
from faults import Armed, Point, points, preloaded
from forked import Command, Server
from homes import SHARED, Home, furnish, set_up_stores

from resources.checkout import PROJECT

ENCODER, GENERATOR = "small-control-3k", "llava-bazaar"
SHIPPED = "local-dir:plumbline/world/checkpoints/"
CANARY = "sk-canary-3b7f1a90"
"""A key that each command is given, and that must be in nothing that it writes or says."""

TRACKING = ("tracked_run", "tracked_answers", "provenance", "audit_record")
"""Tables that name runs of MLflow and of Dagster, which are new in each home."""

CHECKS = ("checks", "answer_checks")
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")


def audit_file() -> dict:
    """Return the settings of the small audit: an encoder, a mitigation and a generative model, seconds in all."""
    visitors = yaml.safe_load((PROJECT / "audit.yaml").read_text())["datasets"]["visitors"]
    return {
        "title": "A small audit",
        "labeller": ENCODER,
        "devices": 1,
        "storage": {"shard_rows": 64},
        "statistics": {"resamples": 200, "permutations": 200},
        "datasets": {
            "visitors": visitors,
            "faces": {"reader": "socialcounterfactuals", "root": "planted:socialcounterfactuals"},
        },
        "encoders": {ENCODER: {"address": SHIPPED + ENCODER}},
        "mitigations": {"logit_adjustment": {"method": "logit_adjustment"}},
        "audit": [{"suites": ["crime"], "datasets": ["visitors"]}],
        "lvlms": {"model": {"address": SHIPPED + GENERATOR}},
        "generation": {"decoding": {"max_new_tokens": 4}},
        "generate": [
            {
                "lvlms": ["model"], "datasets": ["faces"], "subsets": ["race_gender"], "occupations": ["chef"],
                "prompts": ["characteristics"], "instructions": ["none"], "seeds": [0],
            }
        ],
    }  # fmt: skip


@dataclass
class Result:
    """How one trial ended.

    Attributes
    ----------
    right : bool
        Whether all held that its kind asks for.
    what : str
        What was done, so that it can be done again.
    why : str
        What did not hold; "" where all did.
    """

    right: bool
    what: str
    why: str = ""


_SERVERS: list[Server] = []
"""Kept to the end: with the last of them the process ends that commands are forked from."""


class Ground:
    """A folder with the finished reference, what a command did on the way to it, and homes for trials.

    Parameters
    ----------
    folder : Path
        Where everything is kept.
    stores, planted : Path, optional
        Stores in which nothing has happened and planted images, where they are made already; else they are made below
        the folder.
    """

    def __init__(self, folder: Path, *, stores: Path | None = None, planted: Path | None = None) -> None:
        self.folder, self._own, self._preloaded = folder, threading.local(), preloaded()
        self.planted = planted or folder / "planted"
        folder.mkdir(parents=True, exist_ok=True)
        if stores is None and not (folder / "stores" / "done").exists():
            shutil.rmtree(folder / "stores", ignore_errors=True)
            set_up_stores(folder / "stores")
            (folder / "stores" / "done").touch()
        SHARED["stores"] = lambda: stores or folder / "stores" / "home"
        SHARED["planted"] = lambda: self.planted
        self.reference, self.points = self._finished()

    def _finished(self) -> tuple[Home, list[Point]]:
        home, trace = Home(self.folder / "reference"), self.folder / "trace"
        took = home.folder / "done"
        if not took.exists():
            shutil.rmtree(home.folder, ignore_errors=True)
            trace.unlink(missing_ok=True)
            self.home("reference")
            begun = time.monotonic()
            with Armed(home.workspace.home, None, traced=trace) as armed:
                code, output = self.run(home, "audit", **armed.environment)
            assert code == 0, output
            took.write_text(f"{time.monotonic() - begun}")
        self.seconds = float(took.read_text())
        return home, points(trace, home.workspace.home)

    def home(self, name: str, **changes: object) -> Home:
        """Return a new home with the small audit's file, in which nothing has run."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "audit.yaml").write_text(yaml.safe_dump({**audit_file(), **changes}, sort_keys=False))
        furnish(Home(folder))
        return Home(folder)

    def copy(self, name: str) -> Home:
        """Return a copy of the reference that may be changed."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.reference.folder, folder, symlinks=True, ignore=shutil.ignore_patterns("world"))
        shutil.copytree(
            self.reference.workspace.home / "world", folder / "home" / "world", symlinks=True, copy_function=os.link
        )
        return Home(folder)

    def start(self, home: Home, *arguments: str, **environment: str) -> Command:
        """Start a command on a home; every thread has a connection of its own to what commands are forked from."""
        if not hasattr(self._own, "server"):
            self._own.server = Server(self._preloaded)
            _SERVERS.append(self._own.server)
        environment = {**home.environment, **self._preloaded, "PLUMBLINE_TEST_KEY": CANARY, **environment}
        return self._own.server.start(arguments, environment)

    def run(self, home: Home, *arguments: str, **environment: str) -> tuple[int, str]:
        process = self.start(home, *arguments, **environment)
        output, _ = process.communicate()
        return process.returncode, output


def numbers(home: Home) -> dict[str, str]:
    """Return the digest of every stored result, by table and partition, but for what names runs.

    What checks say links to a page below the home; of them the rest is compared.
    """
    lake, digests = home.workspace.lake, {}
    for made in lake.all_committed(without=("embeddings", "training", *TRACKING)):
        lake.verify(made)
        sha256 = made.sha256
        if made.name in CHECKS:
            rows = lake.read_table(made.name, manifest=made).drop("link")
            sha256 = hashlib.sha256(rows.write_csv().encode()).hexdigest()
        digests[f"{made.name} {made.partition}"] = sha256
    return digests


def differences(home: Home, expected: Mapping[str, str]) -> str:
    """Return which results of a home are not those expected; "" where all are."""
    try:
        got = numbers(home)
    except Exception as error:
        return f"results cannot be read: {error}"
    wrong = [name for name in sorted(got.keys() | expected.keys()) if got.get(name) != expected.get(name)]
    return f"other results: {', '.join(wrong[:5])} ({len(wrong)})" if wrong else ""


def aged(home: Home) -> None:
    """Let all temporary files be two hours old: those of the last hour may be another process's."""
    for path in home.folder.rglob("*.tmp"):
        os.utime(path, (time.time() - 7200,) * 2)


def tracked(home: Home) -> Counter[str]:
    """Return how many runs of MLflow there are, by status."""
    with closing(sqlite3.connect(f"file:{home.workspace.home / 'mlflow.db'}?mode=ro", uri=True)) as store:
        return Counter(
            status for (status,) in store.execute("SELECT status FROM runs WHERE lifecycle_stage = 'active'")
        )


def litter(home: Home, reference: Home) -> str:
    """Return what a finished audit should not leave: temporary files, unfinished or doubled runs, held slots."""
    left = [str(path.relative_to(home.workspace.home)) for path in home.workspace.home.rglob("*.tmp")]
    history = home.workspace.dagster_home / "history"
    with closing(sqlite3.connect(f"file:{history / 'runs.db'}?mode=ro", uri=True)) as store:
        statuses = Counter(status for (status,) in store.execute("SELECT status FROM runs"))
    left += [f"{n} runs {status}" for status, n in statuses.items() if status not in FINISHED]
    with closing(sqlite3.connect(f"file:{history / 'runs' / 'index.db'}?mode=ro", uri=True)) as store:
        [(slots,)] = store.execute("SELECT count(*) FROM concurrency_slots WHERE run_id IS NOT NULL")
    left += [f"{slots} slots held"] if slots else []
    if (runs := tracked(home)) != (expected := tracked(reference)):
        left.append(f"runs of MLflow {dict(runs)}, not {dict(expected)}")
    return f"left behind: {', '.join(left[:5])}" if left else ""


def canary(home: Home) -> str:
    """Return the files that hold the key, Parquet and SQLite decoded; "" where none does."""
    held = []
    for path in home.workspace.home.rglob("*"):
        if not path.is_file() or "world" in path.relative_to(home.workspace.home).parts[:1]:
            continue
        if CANARY.encode() in path.read_bytes() or CANARY in _decoded(path):
            held.append(str(path.relative_to(home.workspace.home)))
    return f"the key is in {', '.join(held[:5])}" if held else ""


def _decoded(path: Path) -> str:
    if path.suffix == ".parquet":
        return repr(pl.read_parquet(path).rows())
    if path.suffix == ".db":
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            return "\n".join(store.iterdump())
    if path.suffix in (".html", ".zip"):
        return "".join(_inflated(part) for part in re.findall(r"[A-Za-z0-9+/=]{200,}", path.read_text("latin-1")))
    return ""


def _inflated(text: str) -> str:
    """Return what a base64 text of the page holds, whatever it was compressed with."""
    for mode in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        with contextlib.suppress(ValueError, zlib.error):
            return zlib.decompress(base64.b64decode(text), mode).decode("latin-1")
    return ""
