"""The daemon over many events: checkpoints that come, change and go, datasets that change, endpoints that fail.

The looks and the runs are the daemon's own, sensor by sensor and run by run, but follow one another in one process
without the half minute between two looks, so that what is not given back adds up where it can be measured.
"""

import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from fault_server import completion, error, serving
from ground import CANARY, ENCODER, Ground, Result, litter
from homes import Home, edited

from plumbline.world.folders import ensure
from resources.checkout import PROJECT

CHECKPOINTS = PROJECT / "plumbline" / "world" / "checkpoints"
WEIGHTS = "open_clip_model.safetensors"
EVENTS = 100
MOST_TICKS = 12
PARTITIONS = ("dataset", "encoder", "lvlm", "slice")
MOST_MEMORY_MIB, MOST_FILES = 48, 4
"""By how much the last third of the events may lie above the second: what a process holds, and its open files."""


# --- Events: each changes something on disk, or how the endpoint answers


class World:
    """What stands around a home, and how it changes."""

    def __init__(self, folder: Path, server) -> None:
        self.folder, self.server = folder, server

    def comes_unfinished(self) -> None:
        """Drop a checkpoint whose weights are still being copied."""
        self._drop("small-bazaar-3k", share=0.5)

    def is_finished(self) -> None:
        """Copy the rest of it."""
        self._drop("small-bazaar-3k")

    def changes(self) -> None:
        """Replace the weights of the dropped checkpoint."""
        self._replaced(self.folder / "dropped" / "fresh" / WEIGHTS, "small-control-3k")

    def changes_and_back(self) -> None:
        """Replace weights by the same: other times, the same content."""
        self._replaced(self.folder / "mine" / WEIGHTS, ENCODER)

    def goes(self) -> None:
        """Remove the dropped checkpoint."""
        shutil.rmtree(self.folder / "dropped" / "fresh")

    def is_no_checkpoint(self) -> None:
        """Drop a folder that is none, and take it away again at the next event."""
        (self.folder / "dropped" / "notes").mkdir()
        (self.folder / "dropped" / "notes" / "config.json").write_text("{broken")

    def endpoint_fails(self) -> None:
        """Let the endpoint answer with errors, and give it a new image to be asked about."""
        shutil.rmtree(self.folder / "dropped" / "notes")
        self.server.answer = lambda sent: error(500, f"told {CANARY}")
        self._touched_image()

    def endpoint_hangs(self) -> None:
        """Let it answer with what is none, about another image."""
        self.server.answer = lambda sent: completion(None, message=None)
        self._touched_image()

    def endpoint_is_well(self) -> None:
        """Let it answer, about one image more."""
        self.server.answer = lambda sent: completion("kind, honest")
        self._touched_image()

    def image_is_damaged(self) -> None:
        """Damage an image of the dataset of faces, or mend it."""
        path = min((self.folder / "visitors").rglob("*.jpg"))
        kept = path.with_suffix(".kept")
        if kept.exists():
            kept.replace(path)
        else:
            shutil.copyfile(path, kept)
            path.write_bytes(b"no image")

    def _drop(self, name: str, *, share: float = 1) -> None:
        folder = self.folder / "dropped" / "fresh"
        shutil.copytree(CHECKPOINTS / name, folder, dirs_exist_ok=True)
        data = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(data[: int(len(data) * share)])

    @staticmethod
    def _replaced(path: Path, name: str) -> None:
        new = path.with_name(".new")
        shutil.copyfile(CHECKPOINTS / name / WEIGHTS, new)
        new.replace(path)

    def _touched_image(self) -> None:
        """Append a byte that no decoder reads to an image: other content, about which nothing was asked yet."""
        path = min((self.folder / "faces").rglob("*race_gender_chef*.jpg"))
        path.write_bytes(path.read_bytes() + b"\0")


ROUND: tuple[Callable[[World], None], ...] = (
    World.comes_unfinished, World.is_finished, World.changes, World.changes_and_back, World.goes,
    World.is_no_checkpoint, World.endpoint_fails, World.endpoint_hangs, World.endpoint_is_well, World.image_is_damaged,
)  # fmt: skip


# --- The daemon, in a process of its own


def _simulate(folder: Path, events: int) -> None:
    """Let events happen one after another, each followed to rest; print what is held after each."""
    import dagster as dg

    from orchestration.definitions import build_definitions
    from orchestration.instance import opened
    from orchestration.observing import observe_sources, watch_sources
    from orchestration.watched_folder import watch_folder

    home = Home(folder)
    with serving(lambda sent: completion("kind, honest")) as server, opened(home.workspace) as instance:
        (folder / "endpoint").write_text(server.url)
        edited(home, lvlms={"model": {"endpoint": _endpoint(server.url)}})
        definitions = build_definitions(home.workspace)
        every = definitions.resolve_implicit_global_asset_job_def()
        world, cursors, seen = World(folder, server), {}, {"cursor": None}

        def look(sensor) -> bool:
            with dg.build_sensor_context(
                instance=instance, cursor=cursors.get(sensor.name), resources={"workspace": home.workspace}
            ) as context:
                found = sensor(context)
            cursors[sensor.name] = found.cursor
            for request in found.dynamic_partitions_requests or ():
                instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            for request in found.run_requests or ():
                definitions.resolve_job_def(observe_sources.name).execute_in_process(
                    run_config=request.run_config, instance=instance, raise_on_error=False
                )
            return bool(found.run_requests or found.dynamic_partitions_requests)

        def ask() -> bool:
            # A look asks for the partitions some thousand times.
            known = {name: instance.get_dynamic_partitions(name) for name in PARTITIONS}
            with patch.object(
                instance, "get_dynamic_partitions", lambda partitions_def_name: known[partitions_def_name]
            ):
                found = dg.evaluate_automation_conditions(definitions, instance, cursor=seen["cursor"])
            seen["cursor"] = found.cursor
            runs: dict[object, list[dg.AssetKey]] = {}
            for key in definitions.resolve_asset_graph().toposorted_asset_keys:
                for partition in found.get_requested_partitions(key):
                    runs.setdefault(partition, []).append(key)
            for partition, keys in runs.items():
                every.execute_in_process(
                    partition_key=partition, asset_selection=keys, instance=instance, raise_on_error=False
                )
            return bool(runs)

        def follow() -> int:
            asked = False
            for tick in range(MOST_TICKS):
                # What looks different is read at the second look, once nobody writes it any more.
                looked = any([look(watch_folder), look(watch_sources)])
                if tick > 0 and not looked and not asked:
                    return tick
                asked = (looked or asked) and ask()
            return MOST_TICKS

        ask()
        follow()
        for number in range(events):
            event = ROUND[number % len(ROUND)]
            event(world)
            ticks = follow()
            row = {"event": event.__name__, "ticks": ticks, "asked": len(server.sent), **_held(home)}
            print(json.dumps(row), flush=True)


def _held(home: Home) -> dict[str, int]:
    """Return what this process and the stores hold."""
    status = Path("/proc/self/status").read_text().splitlines()
    [memory] = [int(line.split()[1]) for line in status if line.startswith("VmRSS:")]
    history = home.workspace.dagster_home / "history"
    runs = history / "runs.db"
    left = [*home.folder.rglob("*.tmp"), *Path(tempfile.gettempdir()).rglob("*")]
    return {
        "memory_mib": memory // 1024,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "temporary": sum(path.is_file() for path in left),
        "runs": _count(runs, "SELECT count(*) FROM runs"),
        "unfinished": _count(runs, "SELECT count(*) FROM runs WHERE status NOT IN ('SUCCESS', 'FAILURE')"),
        "failed": _count(runs, "SELECT count(*) FROM runs WHERE status = 'FAILURE'"),
        "dagster_rows": _count(history / "runs" / "index.db", "SELECT count(*) FROM event_logs"),
        "slots": _count(history / "runs" / "index.db", "SELECT count(*) FROM concurrency_slots WHERE run_id NOT NULL"),
        "mlflow_runs": _count(home.workspace.home / "mlflow.db", "SELECT count(*) FROM runs"),
        "mlflow_metrics": _count(home.workspace.home / "mlflow.db", "SELECT count(*) FROM metrics"),
        "home_mib": sum(p.stat().st_size for p in home.workspace.home.rglob("*") if p.is_file()) >> 20,
    }  # fmt: skip


def _count(path: Path, query: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        [(count,)] = store.execute(query)
    return int(count)


# --- The trial


def _endpoint(url: str) -> dict:
    return {
        "urls": [url], "model": "served", "key_variable": "PLUMBLINE_TEST_KEY", "attempts": 2, "timeout_s": 2,
        "concurrency": 2,
    }  # fmt: skip


def prepared(ground: Ground, name: str) -> Home:
    """Return an audited home around which everything may change."""
    home = ground.home(name, which="both")
    for place, planted in (("visitors", "folder"), ("faces", "socialcounterfactuals")):
        shutil.copytree(ensure(planted, ground.planted), home.folder / place)
    shutil.copytree(CHECKPOINTS / ENCODER, home.folder / "mine")
    (home.folder / "dropped").mkdir()
    (home.folder / "temporary").mkdir()
    content = json.loads(json.dumps(home.workspace.audit.model_dump(mode="json", exclude_unset=True)))
    datasets = content["datasets"]
    datasets["visitors"]["root"], datasets["faces"]["root"] = str(home.folder / "visitors"), str(home.folder / "faces")
    with serving(lambda sent: completion("kind, honest")) as server:
        edited(
            home,
            datasets=datasets,
            encoders={**content["encoders"], "mine": {"address": f"local-dir:{home.folder / 'mine'}"}},
            audit=[{"encoders": ["mine"], "suites": ["crime"], "datasets": ["visitors"]}],
            mitigations={},
            lvlms={"model": {"endpoint": _endpoint(server.url)}},
            watch={"folder": str(home.folder / "dropped"), "like": "mine"},
        )
        code, output = ground.run(home, "audit")
        assert code == 0, output
    return home


def over_events(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Let a hundred events happen: memory, open files, temporary files and slots do not grow, and rows only by runs."""
    home = prepared(ground, name)
    command = [sys.executable, __file__, str(home.folder), str(EVENTS)]
    environment = {
        **home.environment, "DAGSTER_HOME": str(home.workspace.dagster_home), "PLUMBLINE_TEST_KEY": CANARY,
        "TMPDIR": str(home.folder / "temporary"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    with (home.folder / "daemon.log").open("w") as log, (home.folder / "events.jsonl").open("w") as kept:
        ended = subprocess.run(command, env=environment, cwd=PROJECT, stdout=kept, stderr=log)
    lines = (home.folder / "events.jsonl").read_text().splitlines()
    held = [json.loads(line) for line in lines if line.startswith('{"event"')]
    if ended.returncode or len(held) < EVENTS:
        return Result(False, f"{len(held)} events", (home.folder / "daemon.log").read_text()[-1500:])
    return Result(not (why := grown(held) or litter(home)), told(held), why)


def grown(held: list[dict]) -> str:
    """Return what grew from event to event that should not; "" where nothing did."""
    third = len(held) // 3
    before, last = held[third : 2 * third], held[2 * third :]
    wrong = []
    for what, most in (("memory_mib", MOST_MEMORY_MIB), ("files", MOST_FILES)):
        rise = max(one[what] for one in last) - max(one[what] for one in before)
        wrong += [f"{what} rose by {rise}"] if rise > most else []
    wrong += [f"{what}: {held[-1][what]}" for what in ("temporary", "slots", "unfinished") if held[-1][what]]
    for one, event in itertools.pairwise(held):
        if event["event"].startswith("endpoint") and event["asked"] == one["asked"]:
            wrong.append(f"{event['event']}: it was not asked")
    meant = sum(one["event"] in ("endpoint_fails", "endpoint_hangs") for one in held)
    wrong += [f"{held[-1]['failed']} runs failed"] if held[-1]["failed"] > meant else []
    restless = Counter(one["event"] for one in held if one["ticks"] == MOST_TICKS)
    wrong += [f"never came to rest after {', '.join(restless)}"] if restless else []
    return "; ".join(wrong)


def told(held: list[dict]) -> str:
    """Return the figures in words."""
    third = len(held) // 3

    def most(what: str, rows: list[dict]) -> str:
        return f"{max(one[what] for one in rows):,}"

    first, last = held[0], held[-1]
    runs = last["runs"] - first["runs"]
    return (
        f"{len(held)} events, {runs:,} runs ({last['failed'] - first['failed']} failed): memory at most "
        f"{most('memory_mib', held[:third])}, {most('memory_mib', held[third : 2 * third])} and "
        f"{most('memory_mib', held[2 * third :])} MiB in its thirds, open files {most('files', held[:third])}, "
        f"{most('files', held[third : 2 * third])} and {most('files', held[2 * third :])}; at the end "
        f"{last['temporary']} temporary files, {last['slots']} slots held, {last['unfinished']} unfinished runs; "
        f"Dagster's store {first['dagster_rows']:,} to {last['dagster_rows']:,} rows, MLflow's "
        f"{first['mlflow_runs']:,} to {last['mlflow_runs']:,} runs and {first['mlflow_metrics']:,} to "
        f"{last['mlflow_metrics']:,} metrics, the home {first['home_mib']:,} to {last['home_mib']:,} MiB"
    )


if __name__ == "__main__":
    _simulate(Path(sys.argv[1]), int(sys.argv[2]))
