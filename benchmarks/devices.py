"""How much faster several devices are than one: `make bench-devices`, or `python -m benchmarks.devices 8 60`.

First the default audit by one process and by as many as there are cores, whose metric tables must be the same rows.
Then devices that are simulated: copies of one checkpoint whose forward passes sleep, so that more devices than cores
can be compared; efficiency is the time of one device over that of all of them times their number, of the stage in which
cells are audited. Run it on a quiet machine.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import polars as pl
import yaml

from benchmarks.incremental import COPIED, replaced
from plumbline.concurrency import usable_cores
from plumbline.storage import Lake
from resources.checkout import PROJECT
from resources.workspace import Workspace

EFFICIENCY = 0.9
"""That simulated devices must reach."""
_STAGE = "audit cells"
_IMAGES = 300
"""Of the dataset: a cell sleeps for each."""
_OF_THE_AUDIT = ["cell_id", "audit_id"]


class Timed(NamedTuple):
    """Seconds of an audit with its start, and of the stage in which cells are audited."""

    whole: float
    cells: float


def audit(project: Path, home: Path, settings: Path) -> Timed:
    """Audit with an audit file in a home of its own; the stages are timed by what is printed.

    Raises
    ------
    SystemExit
        If it fails.
    """
    environment = {**os.environ, "PLUMBLINE_HOME": str(home), "PLUMBLINE_AUDIT": str(settings), "COLUMNS": "100"}
    start, stages, said = time.perf_counter(), {}, []
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "orchestration", "audit"],
        cwd=project, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "──" in line:
                stages[line.partition(" ──")[0]] = time.perf_counter()
    if process.returncode:
        raise SystemExit("".join(said))
    whole, names = time.perf_counter() - start, list(stages)
    first = next(name for name in names if name.startswith(_STAGE))
    return Timed(whole, stages[names[names.index(first) + 1]] - stages[first])


def numbers(home: Path, settings: Path) -> pl.DataFrame:
    """Return the metric table of an audit, without what names the audit."""
    lake: Lake = Workspace(audit_path=settings, home=home).lake
    return lake.read_table("metric_table").drop(_OF_THE_AUDIT)


def on_cores(folder: Path) -> None:
    """Compare the default audit in one process and in one for each core."""
    times, tables = {}, {}
    for devices in (1, usable_cores()):
        settings, home = folder / f"{devices}.yaml", folder / f"home-{devices}"
        content = yaml.safe_load((PROJECT / "audit.yaml").read_text("utf-8"))
        settings.write_text(yaml.safe_dump({**content, "devices": devices}, sort_keys=False), "utf-8")
        times[devices], tables[devices] = audit(PROJECT, home, settings), numbers(home, settings)
        whole, cells = times[devices]
        print(f"the default audit, {devices} process(es): {whole:6.1f} s, of which cells {cells:6.1f} s", flush=True)
    one, several = times.values()
    first, second = tables.values()
    print(f"  {one.whole / several.whole:.2f} × as fast, cells {one.cells / several.cells:.2f} ×")
    print(f"  {first.height:,} rows, {'the same' if first.equals(second) else 'NOT THE SAME'}")
    if not first.equals(second):
        raise SystemExit(1)


def simulated(folder: Path, devices: int, seconds: float) -> None:
    """Compare one simulated device with several: two checkpoints a device, each of which sleeps so long for a cell."""
    project = folder / "project"
    project.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copy
        copy(PROJECT / name, project / name)
    replaced(
        project / "plumbline" / "encoders" / "open_clip.py",
        "    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:\n",
        "    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:\n"
        f"        import time\n        time.sleep(len(batch) * {seconds / _IMAGES})\n",
    )
    encoders = {}
    audited = [f"e{number}" for number in range(2 * devices)]
    # The labeller embeds the images before any cell: one that was audited too would leave a device without work.
    for number, name in enumerate(("labels", *audited)):
        checkpoint = shutil.copytree(
            project / "plumbline/world/checkpoints/small-control-3k", folder / "checkpoints" / str(number)
        )
        with (checkpoint / "open_clip_config.json").open("a") as config:
            config.write(" " * (number + 1))  # another checkpoint: embeddings are kept by content
        encoders[name] = {"address": f"local-dir:{checkpoint}"}
    times = {}
    for number in (devices, 1):
        content = {
            "title": "Simulated devices",
            "devices": number,
            "statistics": {"resamples": 100, "permutations": 100},
            "datasets": {"visitors": yaml.safe_load((PROJECT / "audit.yaml").read_text())["datasets"]["visitors"]},
            "encoders": encoders,
            "labeller": "labels",
            "mitigations": {},
            "audit": [{"encoders": audited, "suites": ["crime"]}],
        }
        settings = folder / f"simulated-{number}.yaml"
        settings.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
        times[number] = audit(project, folder / f"simulated-{number}", settings)
        whole, cells = times[number]
        print(
            f"{2 * devices} cells of {seconds:g} s, {number} simulated device(s): {whole:7.1f} s, "
            f"of which cells {cells:7.1f} s",
            flush=True,
        )
    efficiency = times[1].cells / times[devices].cells / devices
    print(f"  efficiency {efficiency:.0%} (bar {EFFICIENCY:.0%}); of the whole audit "
          f"{times[1].whole / times[devices].whole / devices:.0%}")  # fmt: skip
    if efficiency < EFFICIENCY:
        raise SystemExit(1)


def main() -> None:
    """Print both comparisons; with a number of devices and the seconds of a cell, only the simulated one."""
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            simulated(Path(folder), int(sys.argv[1]), float(sys.argv[2]))
        else:
            on_cores(Path(folder))
            simulated(Path(folder), 8, 60.0)


if __name__ == "__main__":
    main()
