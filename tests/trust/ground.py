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
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml
from faults import Armed, Point, points, preloaded
from forked import Command, Server
from homes import SHARED, Home, furnish, set_up_stores

from resources.checkout import PROJECT
from resources.tracking import CELL_TAG, SHOWS_TAG

ENCODER, GENERATOR = "small-control-3k", "llava-bazaar"
SHIPPED = "local-dir:plumbline/world/checkpoints/"
CANARY = "sk-canary-3b7f1a90"
"""A key that each command is given, and that must be in nothing that it writes or says."""

TRACKING = ("tracked_run", "tracked_answers", "provenance", "audit_record", "audit_diff")
"""Tables that name runs of MLflow and of Dagster, which are new in each home, or compare with an earlier audit."""

LONGEST_S = 1500
"""Of one command on a busy machine."""

CHECKS = ("checks", "answer_checks")
FINISHED = ("SUCCESS", "FAILURE", "CANCELED")


def audit_file(which: str = "both") -> dict:
    """Return the settings of a small audit: of an `encoder` with a mitigation, of a `generator`, or of `both`."""
    visitors = yaml.safe_load((PROJECT / "audit.yaml").read_text())["datasets"]["visitors"]
    common = {
        "title": "A small audit",
        "devices": 1,
        "storage": {"shard_rows": 64},
        "statistics": {"resamples": 200, "permutations": 200},
    }
    of_encoder = {
        "labeller": ENCODER,
        "encoders": {ENCODER: {"address": SHIPPED + ENCODER}},
        "mitigations": {"logit_adjustment": {"method": "logit_adjustment"}},
        "audit": [{"suites": ["crime"], "datasets": ["visitors"]}],
    }
    of_generator = {
        "lvlms": {"model": {"address": SHIPPED + GENERATOR}},
        "generation": {"decoding": {"max_new_tokens": 4}},
        "generate": [
            {
                "lvlms": ["model"], "datasets": ["faces"], "subsets": ["race_gender"], "occupations": ["chef"],
                "prompts": ["characteristics"], "instructions": ["none"], "seeds": [0],
            }
        ],
    }  # fmt: skip
    faces = {"reader": "socialcounterfactuals", "root": "planted:socialcounterfactuals"}
    of_encoder["datasets"], of_generator["datasets"] = {"visitors": visitors}, {"faces": faces}
    if which == "encoder":
        return common | of_encoder
    if which == "generator":
        return common | of_generator
    return common | of_encoder | of_generator | {"datasets": {"visitors": visitors, "faces": faces}}


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
    which : str
        What is audited, as `audit_file` has it.

    Attributes
    ----------
    reference : Home
        In which the audit has been done.
    points : list of Point
        What it called.
    seconds : float
        How long it took.
    """

    def __init__(
        self, folder: Path, *, stores: Path | None = None, planted: Path | None = None, which: str = "encoder"
    ) -> None:
        self.folder, self.which, self._own, self._preloaded = folder, which, threading.local(), preloaded()
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

    def home(self, name: str, *, which: str = "", **changes: object) -> Home:
        """Return a new home with the small audit's file, in which nothing has run."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "audit.yaml").write_text(
            yaml.safe_dump({**audit_file(which or self.which), **changes}, sort_keys=False)
        )
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
        return ended(self.start(home, *arguments, **environment))


def ended(process: Command) -> tuple[int, str]:
    """Wait for a command and return its exit code and output, in which the key must not be."""
    output, _ = process.communicate(timeout=LONGEST_S)
    if CANARY in output:
        raise KeyTold(shown(output))
    return process.returncode, output


def shown(output: str) -> str:
    """Return the beginning and the end of what a command said: what goes to stderr often stands first."""
    return output if len(output) < 2500 else f"{output[:1000]} […] {output[-1500:]}"


class KeyTold(Exception):
    """A command wrote the key to its output."""


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


def tracked(home: Home) -> Counter[tuple[str, str, str]]:
    """Return how many runs MLflow has, by status, the cell that they are of, and what they show."""
    with closing(sqlite3.connect(f"file:{home.workspace.home / 'mlflow.db'}?mode=ro", uri=True)) as store:
        return Counter(
            store.execute(
                "SELECT status, cell.value, shows.value FROM runs "
                "LEFT JOIN tags AS cell ON cell.run_uuid = runs.run_uuid AND cell.key = ? "
                "LEFT JOIN tags AS shows ON shows.run_uuid = runs.run_uuid AND shows.key = ? "
                "WHERE lifecycle_stage = 'active'",
                [CELL_TAG, SHOWS_TAG],
            )
        )


def litter(home: Home, reference: Home | None = None) -> str:
    """Return what a finished audit should not leave: temporary files, unfinished or doubled runs, held slots.

    A home in which nothing else was audited has as many runs of MLflow as the reference, but for that of an audit that
    ended with a failed step: it had other numbers, and has a run of its own.
    """
    left = [str(path.relative_to(home.workspace.home)) for path in home.workspace.home.rglob("*.tmp")]
    history = home.workspace.dagster_home / "history"
    with closing(sqlite3.connect(f"file:{history / 'runs.db'}?mode=ro", uri=True)) as store:
        statuses = Counter(status for (status,) in store.execute("SELECT status FROM runs"))
    left += [f"{n} runs {status}" for status, n in statuses.items() if status not in FINISHED]
    with closing(sqlite3.connect(f"file:{history / 'runs' / 'index.db'}?mode=ro", uri=True)) as store:
        [(slots,)] = store.execute("SELECT count(*) FROM concurrency_slots WHERE run_id IS NOT NULL")
    left += [f"{slots} slots held"] if slots else []
    runs = tracked(home)
    left += [f"{n} runs of MLflow {key}" for key, n in runs.items() if n > 1 or key[0] != "FINISHED"]
    if reference is not None:
        found, expected = (sum(n for key, n in of.items() if key[2] != "audit") for of in (runs, tracked(reference)))
        left += [f"{found} runs of MLflow beside those of audits, not {expected}"] if found != expected else []
    return f"left behind: {', '.join(left[:5])}" if left else ""


def canary(home: Home) -> str:
    """Return the files beside and in a home that hold the key, whatever they are packed in; "" where none does."""
    held = []
    folders = home.folder.parent.glob(f"{home.folder.name}*")  # a trial may make a second one to compare with
    for path in (each for folder in folders for each in folder.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_file() and not {"world", "planted"} & set(path.parts) and holds_key(path):
                held.append(str(path.relative_to(home.folder.parent)))
    return f"the key is in {', '.join(held[:5])}" if held else ""


def holds_key(path: Path) -> bool:
    data = path.read_bytes()
    if CANARY.encode() in data:
        return True
    # What is damaged cannot be unpacked: the bytes as they are have been searched.
    with contextlib.suppress(Exception):
        if path.suffix == ".parquet":
            return CANARY in repr(pl.read_parquet(path).rows())
        if path.suffix == ".db":
            return any(_unpacked_holds_key(cell) for cell in _cells(path))
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                return any(_unpacked_holds_key(packed.read(name)) for name in packed.namelist())
        return _unpacked_holds_key(data)
    return False


def _cells(path: Path) -> Iterator[bytes]:
    """Give every text and blob of a database, those that are spread over pages whole."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        store.text_factory = bytes
        for (table,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in store.execute(f'SELECT * FROM "{table.decode()}"'):
                yield from (cell for cell in row if isinstance(cell, bytes))


def _unpacked_holds_key(data: bytes) -> bool:
    """Look for the key in bytes, in what they are deflated from, and in what is base64 of something deflated."""
    if CANARY.encode() in data or CANARY.encode() in _inflated(data):
        return True
    # Letters that base64 has may stand beside it: an incomplete group at the end is left out.
    return any(
        CANARY.encode() in _inflated(base64.b64decode(part[: len(part) // 4 * 4]))
        for part in re.findall(rb"[A-Za-z0-9+/]{200,}", data)
    )


def _inflated(data: bytes) -> bytes:
    """Return what data hold, zlib's, gzip's or bare; nothing where they are not deflated."""
    for mode in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        with contextlib.suppress(zlib.error):
            return zlib.decompressobj(mode).decompress(data)
    return b""


class ProcessList(threading.Thread):
    """Looks for the key among the arguments of all processes, again and again, as any user of the machine can.

    Attributes
    ----------
    seen : list of str
        Arguments that held it.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[str] = []

    def run(self) -> None:
        while True:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if CANARY.encode() in (arguments := path.read_bytes()):
                        self.seen.append(arguments.replace(b"\0", b" ").decode("utf-8", "replace"))
            time.sleep(0.5)
