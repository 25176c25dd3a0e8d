"""What an audit costs after a change, beside a cold audit of the same files: `make bench-incremental`.

Each change is made in a copy of the project, in a home of its own, after an audit that was up to date. Printed are the
time with the start of the command, results computed, forward passes, and the bar of the issue in seconds where it has
one. Run it on a quiet machine.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from resources.checkout import PROJECT

COPIED = ("plumbline", "assets", "resources", "orchestration", "audit.yaml", "dagster.yaml", "workspace.yaml")
_CHECKPOINT = "plumbline/world/checkpoints/small-control-3k/open_clip_config.json"


def replaced(path: Path, old: str, new: str) -> None:
    """Replace a text that occurs in a file.

    Raises
    ------
    ValueError
        If it does not.
    """
    text = path.read_text("utf-8")
    if old not in text:
        raise ValueError(f"{path} does not hold {old!r}")
    path.write_text(text.replace(old, new, 1), "utf-8")


def _another_image(project: Path) -> None:
    image = sorted((project / ".plumbline" / "world").glob("utkface-*/**/*.jpg"))[0]
    image.write_bytes(image.read_bytes() + b"\0")  # after the picture's end


def _another_word(suite: str, word: str, before: str) -> Callable[[Path], None]:
    return lambda p: replaced(p / f"plumbline/catalog/suites/{suite}.yaml", before, word + before)


CHANGES: dict[str, tuple[Callable[[Path], None], float | None]] = {
    "nothing": (lambda project: None, 6),
    "the title of the report": (lambda p: replaced(p / "audit.yaml", "title: ", "title: Once more, "), 8),
    "one word added to crime, which 17 cells read": (_another_word("crime", "burglar, ", "thief,"), 25),
    "one word added to communion, which 7 read": (_another_word("communion", "rude, ", "dishonest,"), 25),
    "one metric edited": (
        lambda p: replaced(p / "plumbline/metrics/rankings/rows.py", "RANKINGS = ", "_EDITED = 1\nRANKINGS = "),
        None,
    ),
    "one checkpoint replaced": (lambda p: (p / _CHECKPOINT).write_text((p / _CHECKPOINT).read_text() + " "), None),
    "one image changed": (_another_image, None),
}
"""What is changed -> how, given the project's copy, and the seconds that it may take."""


def audit(project: Path) -> tuple[float, int, int]:
    """Audit a copy of the project; return seconds, results that were computed, and forward passes."""
    before = {path: path.stat().st_mtime_ns for path in (project / ".plumbline").glob("lake/builds/**/build.json")}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "orchestration", "audit"], cwd=project, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = (project / ".plumbline").glob("lake/builds/**/build.json")
    computed = sum(before.get(path) != path.stat().st_mtime_ns for path in after)
    passes = re.search(r"(\d+) forward passes", done.stdout)
    return seconds, computed, int(passes.group(1)) if passes else 0


def main() -> None:
    """Print the table, and keep it as JSON in the file that is named, if one is."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        for name in COPIED:
            copy = shutil.copytree if (PROJECT / name).is_dir() else shutil.copy
            copy(PROJECT / name, project / name)
        rows["cold"] = (*audit(project), None)
        print(f"{'change':<46}{'seconds':>9}{'of cold':>9}{'results':>9}{'passes':>8}{'bar':>6}")
        for name, (change, bar) in {"cold": (None, None), **CHANGES}.items():
            if change is not None:
                change(project)
                rows[name] = (*audit(project), bar)
            seconds, computed, passes, bar = rows[name]
            share = seconds / rows["cold"][0]
            print(f"{name:<46}{seconds:>9.1f}{share:>9.2f}{computed:>9}{passes:>8}{bar or '':>6}", flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
