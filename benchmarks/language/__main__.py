"""Language metrics over 1 and 5 million answers: `make bench-language` or `python -m benchmarks.language [--small]`.

Every task runs in a process of its own over synthetic answers on disk, so that its peak memory is its own. The exit
status is not 0 where counts disagree with a peer's or a bar is missed. `--small` is a quick trial without bars.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.language.corpus import parts_for, write_corpus
from benchmarks.language.peers import ANSWERS_AT_ONCE
from benchmarks.statistics.contest import duration, timed
from benchmarks.statistics.memory import in_a_process

TITLES = {
    "word_counts": "word counts by group",
    "associations": "associated words (PMI) with intervals: the texts are read twice",
    "max_toxicity": "the whole max_toxicity family, with 20 resamples",
    "lengths": "the whole refusals_and_lengths family, with 20 resamples",
}
KEEPS_A_NUMBER_AN_ANSWER = ("lengths",)
"""Tests by group need every answer's number, of one question at a time: some 80 bytes an answer, under the bar in MiB;
what streams texts and scores has a bar of growth too."""
PEERS = ("scikit_learn", "pandas")
STUDY_ROWS = 57_116_970
LEAST_RATIO, MOST_MIB, MOST_GROWTH = 4.0, 3 * 1024, 1.3
FREE_BYTES_A_ROW = 600


@dataclass(frozen=True)
class Sizes:
    """How many parts of the corpus a run reads: few, and many."""

    few: int
    many: int
    bars: bool


def main() -> int:
    """Print every task, and return 1 where a bar is missed or counts disagree."""
    parser = argparse.ArgumentParser(prog="benchmarks.language", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a quarter and half a million answers, no bars")
    parser.add_argument("--folder", type=Path, help="where the corpus is written; a temporary one by default")
    asked = parser.parse_args()
    sizes = Sizes(1, 2, bars=False) if asked.small else Sizes(parts_for(1_000_000), parts_for(5_000_000), bars=True)
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < FREE_BYTES_A_ROW * 250_000 * sizes.many:
            print(f"too little space in {folder}", file=sys.stderr)
            return 1
        seconds, _ = timed(lambda: write_corpus(folder, sizes.many))
        print(f"corpus of {sizes.many} parts written in {duration(seconds)}", flush=True)
        return run(folder, sizes)


def run(folder: Path, sizes: Sizes) -> int:
    """Run every task and peer over a corpus, and print what they took."""
    missed = [task for task in TITLES if not _show(task, folder, sizes)]
    if not _compare(folder, sizes):
        missed.append("the usual tools")
    if missed:
        print(f"\nFAILED: {'; '.join(missed)}")
    return 1 if missed else 0


def _done(task: str, folder: Path, parts: int) -> dict[str, Any]:
    return in_a_process("benchmarks.language.tasks", task, folder, parts)


def _show(task: str, folder: Path, sizes: Sizes) -> bool:
    """Print rows a second and peak memory of both sizes; return whether memory keeps to its bars."""
    few, many = (_done(task, folder, parts) for parts in (sizes.few, sizes.many))
    print(f"\n{TITLES[task]}")
    for done in (few, many):
        speed = done["rows"] / done["seconds"]
        print(
            f"  {done['rows']:>9,} answers  {duration(done['seconds']):>9}  {speed:>9,.0f}/s  {done['mib']:>6,.0f} MiB"
        )
    hours = many["seconds"] * STUDY_ROWS / many["rows"] / 3600
    print(f"  extrapolated to the study's {STUDY_ROWS:,} answers: {hours:.1f} h", flush=True)
    growth = many["mib"] / few["mib"]
    streams = task not in KEEPS_A_NUMBER_AN_ANSWER
    verdict = "PASS" if many["mib"] <= MOST_MIB and (growth <= MOST_GROWTH or not streams) else "MISS"
    bars = f"bars {MOST_MIB:,} MiB, {MOST_GROWTH}x" if streams else f"bar {MOST_MIB:,} MiB"
    said = f"  {bars} {verdict}" if sizes.bars else ""
    print(f"  memory of {many['rows'] / few['rows']:.1f}x the answers: {growth:.2f}x{said}", flush=True)
    return not sizes.bars or verdict == "PASS"


def _compare(folder: Path, sizes: Sizes) -> bool:
    """Print the ratio to scikit-learn and pandas in the same run; return whether counts agree and the bar is met."""
    # Timed again beside the peer: other work on the machine comes and goes.
    ours, theirs, slow = (_done(task, folder, sizes.few) for task in ("word_counts", *PEERS))
    ratio = theirs["seconds"] / ours["seconds"]
    counts = [pl.read_parquet(folder / f"{task}-{sizes.few}.counts") for task in ("word_counts", *PEERS)]
    same = all(counts[0].equals(each) for each in counts[1:])
    verdict = "PASS" if ratio >= LEAST_RATIO else "MISS"
    bar = f"  bar {LEAST_RATIO:.0f}x {verdict}" if sizes.bars else ""
    print(f"\nword counts of {ours['rows']:,} answers: {duration(ours['seconds'])}, {ours['mib']:,.0f} MiB")
    print(f"  scikit-learn's CountVectorizer  {duration(theirs['seconds']):>9}  {ratio:6,.1f}x{bar}")
    print(f"    {theirs['mib']:,.0f} MiB")
    slower = slow["seconds"] / ours["seconds"]
    print(f"  pandas, findall and explode     {duration(slow['seconds']):>9}  {slower:6,.1f}x")
    print(f"    {slow['mib']:,.0f} MiB with {ANSWERS_AT_ONCE:,} answers at a time")
    print(f"  {counts[0].height:,} counts, {'all equal' if same else 'DISAGREE'}", flush=True)
    return same and (not sizes.bars or verdict == "PASS")


if __name__ == "__main__":
    sys.exit(main())
