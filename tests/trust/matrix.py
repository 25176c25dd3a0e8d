"""`make trust`: everything that can go wrong around a small audit, tried, counted and told.

Trials are drawn by seed and number, so that any of them can be done again: `matrix.py --only "two writers" --from 1
--trials 1`. What was tried is kept in a file, and a run that is interrupted goes on where it was.
"""

import argparse
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

for _folder in ("trust", "end_to_end", "generators", "images"):
    sys.path.insert(0, str(Path(__file__).parents[1] / _folder))
sys.path.insert(0, str(Path(__file__).parents[2]))

import daemon  # noqa: E402
import damage  # noqa: E402
import interruptions  # noqa: E402
import parsers  # noqa: E402
import strangers  # noqa: E402
from faults import compiler  # noqa: E402
from ground import Ground, KeyTold, ProcessList, Result, canary  # noqa: E402
from homes import Home  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: E402
from rich.table import Table  # noqa: E402

from resources.checkout import PROJECT  # noqa: E402

SEED = 0
FUZZED_AT_ONCE = 2_000
DAEMON = f"the daemon over {daemon.EVENTS} events"


def _fuzzed(name: str) -> Callable[[Ground, random.Random, str, int], Result]:
    def fuzz(ground: Ground, rng: random.Random, place: str, number: int) -> Result:
        count, crashes = parsers.fuzz(name, f"{SEED} {number}", examples=FUZZED_AT_ONCE)
        for crash in crashes:
            kept = parsers.CORPUS / name.replace(" ", "-") / f"{number}-{crashes.index(crash)}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(crash.data)
        why = "; ".join(crash.why.strip().splitlines()[-1] for crash in crashes[:3])
        return Result(not crashes, f"{count} examples from seed {number}", why)

    return fuzz


@dataclass(frozen=True)
class Kind:
    """One kind of trial.

    Attributes
    ----------
    name : str
        As in the table.
    trials : int
        Of an hour.
    holds : str
        What a trial asks for.
    run : callable
        Takes the ground, the trial's random numbers, a name for its home, and its number; gives None where this
        machine cannot try it.
    on : tuple of str
        The audits that it is tried on, see `ground.audit_file`; one of them is drawn.
    """

    name: str
    trials: int
    holds: str
    run: Callable[[Ground, random.Random, str, int], Result | None]
    on: tuple[str, ...] = ("encoder", "generator")


_WHOLE = "the next audit ends with the reference's bytes, at most a shard's forward passes twice, no litter, no key"
_ENCODER = ("encoder",)
KINDS = (
    Kind("kill at any time", 60, _WHOLE, interruptions.kill_at_any_time),
    Kind("kill at a system call", 120, _WHOLE, interruptions.kill_at_a_call),
    Kind("kill of a later command", 40, _WHOLE, interruptions.kill_a_later_command),
    Kind("SIGINT, SIGTERM, SIGHUP", 15, f"ended in words or by the signal; {_WHOLE}", interruptions.asked_to_stop),
    Kind("refused by the system", 70, f"words with the place; {_WHOLE}", interruptions.refused_by_the_system),
    Kind("clock jumps", 10, f"the audit ends well; {_WHOLE}", interruptions.clock),
    Kind("damage in a home", 160, "made again or named; no number changes silently", damage.in_the_home),
    Kind("damage in sources", 40, "the bytes of a cold audit of what is left; no row lost", damage.in_the_sources,
         _ENCODER),
    Kind("bad input", 150, "refused with place and what was found, or quarantined", damage.handed_in, _ENCODER),
    Kind("endpoints that fail", len(strangers.MODES), "words and no key; complete once it is well", strangers.endpoint,
         ("generator",)),
    Kind("servers and exports", 2, "the key is on no page and in no file", strangers.served, ("generator",)),
    Kind("two writers", 21, f"both end well or say why not; {_WHOLE}", strangers.two_writers, _ENCODER),
    Kind(DAEMON, 1, "memory, open files, temporary files and slots do not grow", daemon.over_events, _ENCODER),
    Kind("rights and links", 32, "words with the place; nothing outside changed", strangers.other_rights),
    *(
        Kind(f"fuzzed: {name}", 5, f"{FUZZED_AT_ONCE:,} examples are read or refused in words", _fuzzed(name))
        for name in parsers.PARSERS
    ),
)  # fmt: skip


def main() -> int:
    """Try, keep what came of it, print the table and write the page; 1 where something was wrong."""
    wanted = argparse.ArgumentParser(description="Faults around a small audit.")
    wanted.add_argument("--hours", type=float, default=1)
    wanted.add_argument("--only", action="append", choices=[kind.name for kind in KINDS], help="a kind of trial")
    wanted.add_argument("--from", dest="first", type=int, default=0, help="number of the first trial")
    wanted.add_argument("--trials", type=int, help="of each kind")
    wanted.add_argument("--folder", type=Path, default=PROJECT / ".trust")
    wanted.add_argument("--page", type=Path, help="where the table is written as a page")
    asked = wanted.parse_args()
    console = Console()
    if compiler() is None:
        console.print("A C compiler is needed for faults at system calls: apt-get install gcc")
        return 2
    kinds = [kind for kind in KINDS if not asked.only or kind.name in asked.only]
    kept = asked.folder / "trials.jsonl"
    console.print(f"A small audit is done first, and what it calls is noted ({asked.folder}).")
    grounds = {which: _ground(asked.folder, which) for which in ("encoder", "generator")}
    # One that is named by its number is tried again.
    done = set() if asked.only and asked.trials else _done(kept)
    trials = [
        (kind, number)
        for share in range(1000)
        for kind in kinds
        for number in _numbers(kind, asked, share)
        if (kind.name, number) not in done
    ]
    took = " and ".join(f"{ground.seconds:.1f} s ({which})" for which, ground in grounds.items())
    console.print(f"{len(trials)} trials, {len(done)} done before; a small audit takes {took}.")
    _run(grounds, trials, kept, seconds=asked.hours * 3600, console=console)
    return _tell(kinds, kept, console, asked.page)


def _ground(folder: Path, which: str) -> Ground:
    """Return the ground of an audit; one whose reference is of other code is audited anew."""
    kept, code = folder / which / "code", _code()
    if not kept.exists() or kept.read_text() != code:
        shutil.rmtree(folder / which / "reference", ignore_errors=True)
    ground = Ground(folder / which, which=which, planted=folder / "planted")
    kept.write_text(code)
    return ground


def _code() -> str:
    digest = hashlib.sha256()
    for package in ("plumbline", "assets", "resources", "orchestration"):
        for path in sorted((PROJECT / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _numbers(kind: Kind, asked: argparse.Namespace, share: int) -> range:
    """Return the trials of a kind in one thousandth of the whole, so that all kinds are at it from the beginning."""
    count = asked.trials or round(kind.trials * max(1.0, asked.hours))
    return range(asked.first + count * share // 1000, asked.first + count * (share + 1) // 1000)


def _done(kept: Path) -> set[tuple[str, int]]:
    if not kept.exists():
        return set()
    return {(one["kind"], one["number"]) for one in map(json.loads, kept.read_text().splitlines())}


def _run(
    grounds: dict[str, Ground], trials: list[tuple[Kind, int]], kept: Path, *, seconds: float, console: Console
) -> None:
    """Run trials on two threads, each with commands of its own, until the time is over."""
    end, lock, waiting, commit = time.monotonic() + seconds, threading.Lock(), iter(trials), _commit()
    processes = ProcessList()
    processes.start()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("trials", total=len(trials))

        def work() -> None:
            while time.monotonic() < end:
                with lock:
                    kind, number = next(waiting, (None, 0))
                if kind is None:
                    return
                result = _tried(kind, grounds, number, processes)
                if result is None:
                    continue
                with lock, kept.open("a") as file:
                    told = {"kind": kind.name, "number": number, "commit": commit, **vars(result)}
                    file.write(json.dumps(told) + "\n")
                    if not result.right:
                        progress.console.print(
                            f"wrong: {kind.name} {number}: {result.what}: {result.why}", markup=False
                        )
                progress.advance(bar)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _commit() -> str:
    """Return the commit that is tried; "" where this is no clone."""
    asked = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=PROJECT, capture_output=True, text=True)
    return asked.stdout.strip()


def _tried(kind: Kind, grounds: dict[str, Ground], number: int, processes: ProcessList) -> Result | None:
    """Run one trial, then look for the key in all that it left; what was wrong is kept to be looked at."""
    rng = random.Random(f"{SEED} {kind.name} {number}")
    ground = grounds[rng.choice(kind.on)]
    name = f"{re.sub('[^A-Za-z]+', '-', kind.name)}-{number}"
    try:
        result = kind.run(ground, rng, name, number)
    except KeyTold as error:
        result = Result(False, "a command", f"wrote the key to its output: {error}")
    except Exception:
        result = Result(False, "the trial itself", traceback.format_exc()[-1500:])
    if result is None:
        return None
    leaked = canary(Home(ground.folder / name)) or "".join(f"the key is an argument of {one}" for one in processes.seen)
    if leaked and result.right:
        result = Result(False, result.what, leaked)
    if result.right:
        shutil.rmtree(ground.folder / name, ignore_errors=True)
    return result


def _tell(kinds: list[Kind], kept: Path, console: Console, page: Path | None) -> int:
    lines = map(json.loads, kept.read_text().splitlines()) if kept.exists() else ()
    told = list({(one["kind"], one["number"]): one for one in lines}.values())  # one that was tried again counts once
    tried, right = Counter(one["kind"] for one in told), Counter(one["kind"] for one in told if one["right"])
    table = Table("kind", "tried", "right", "wrong", "a trial is right where")
    for kind in kinds:
        n, well = tried[kind.name], right[kind.name]
        table.add_row(kind.name, f"{n}", f"{well}", f"{n - well}", kind.holds)
    console.print(table)
    if page is not None:
        page.write_text(_page(kinds, told, tried, right))
    return int(right.total() < tried.total())


def _page(kinds: list[Kind], told: list[dict], tried: Counter[str], right: Counter[str]) -> str:
    lines = [
        "# What was tried to break it",
        "",
        f"`make trust` of {date.today()}, seed {SEED}. Each trial is done again by `tests/trust/matrix.py --only KIND",
        "--from NUMBER --trials 1`; the kinds are described in `tests/trust/`. After each, whatever it is, a key that",
        "all commands were given is searched in what they said, in the process list, and in every file that they left,",
        "Parquet, databases and what is deflated in them unpacked.",
        "",
        "| kind | tried | right | wrong | a trial is right where |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        n, well = tried[kind.name], right[kind.name]
        lines.append(f"| {kind.name} | {n} | {well} | {n - well} | {kind.holds} |")
    planned = sum(kind.trials for kind in kinds)
    if tried.total() < planned:
        lines += [
            "",
            f"An hour on two free cores is {planned:,} trials; {tried.total():,} of them were done, beside much other",
            "work. `make trust` goes on where it was, `HOURS=n` does n times as many.",
        ]
    lines += ["", "How time and memory grow with the records is in [performance.md](performance.md)."]
    if not tried[DAEMON]:
        lines += ["", "What fewer events of the daemon showed is in [decision 75](decisions/0075-what-a-trial-is.md)."]
    for one in (one for one in told if one["kind"] == DAEMON and one["right"]):
        lines += ["", f"The daemon: {one['what']}."]
    commits = Counter(one.get("commit") or "an unknown commit" for one in told)
    of_each = ", ".join(f"{n:,} of `{commit}`" for commit, n in commits.most_common())
    lines += ["", f"Trials by the commit that was tried: {of_each}."]
    wrong = [one for one in told if not one["right"]]
    if wrong:
        lines += ["", "## Wrong", ""]
        lines += [
            f"- {one['kind']} {one['number']}: {one['what']}: {' '.join(one['why'].split())[:300]}" for one in wrong
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
