"""Time of `import plumbline` and of an audit in memory: what a person in a notebook waits for.

Run `python -m benchmarks.notebook`, or `make bench-notebook`. Each measurement is a process of its own, in turns, and
the fastest of some rounds counts: by the clock, and beside it in seconds of the processor, which other work on the
machine changes less. The audit is of 1,000 vectors of 512 numbers with gender and race, three suites, and as many
resamples and permutations as by default, on two cores. Exits with 1 where a bar is missed by the clock.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import NamedTuple

AUDIT = """
import numpy as np, plumbline
rng = np.random.default_rng(0)
texts = plumbline.prompts(SUITES)
labels = {"gender": rng.choice(["woman", "man"], 1000), "race": rng.choice(["A", "B", "C", "D", "E", "F", "G"], 1000)}
images, words = rng.normal(size=(1000, 512)), rng.normal(size=(len(texts), 512))
start, used = time.perf_counter(), time.process_time()
found = plumbline.audit_features(images, text_features=words, labels=labels, suites=SUITES)
assert found.table.height > 100
"""
SUITES = ["crime", "agency", "communion"]


class Step(NamedTuple):
    """What is timed: Python, and the seconds that it may take."""

    source: str
    bar_s: float


STEPS = {
    "import plumbline": Step("import plumbline", 0.3),
    "import plumbline.metrics": Step("import plumbline.metrics", 1.0),
    f"1,000 vectors, {', '.join(SUITES)}": Step(AUDIT.replace("SUITES", repr(SUITES)), 5.0),
}


class Taken(NamedTuple):
    """Seconds by the clock and of the processor."""

    clock: float
    processor: float


def taken(step: Step) -> Taken:
    """Run a step in a process of its own; imports that its source makes before it sets the clock do not count."""
    lines = [
        "import time",
        "start, used = time.perf_counter(), time.process_time()",
        step.source,
        "print(time.perf_counter() - start, time.process_time() - used)",
    ]
    printed = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    return Taken(*map(float, printed.stdout.split()))


def main() -> None:
    """Time each step and print it beside its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    best: dict[str, Taken] = {}
    for _ in range(rounds):
        for name, step in STEPS.items():
            one = taken(step)
            best[name] = Taken(*map(min, best.get(name, one), one))
    for name, one in best.items():
        bar = STEPS[name].bar_s
        said = "" if one.clock <= bar else "   missed"
        print(f"{name:<45}{one.clock:>7.2f} s   {one.processor:.2f} s of the processor   bar {bar:g} s{said}")
    sys.exit(any(one.clock > STEPS[name].bar_s for name, one in best.items()))


if __name__ == "__main__":
    main()
