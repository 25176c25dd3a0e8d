"""One row of the table: seconds of the fast way and of a peer, the ratio with its bar, and whether results agree."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

IMAGES, RACES, PROMPTS, RESAMPLES = 10_954, 7, 30, 10_000
"""FairFace's validation split, its races, the prompts of a suite, and the resamples of an interval."""


@dataclass(frozen=True)
class Peer:
    """What a fast way is measured against.

    Attributes
    ----------
    name : str
    seconds : float
        Of the whole task; where only a part was run, scaled up, and `part` says of what.
    agrees : bool
    agreement : str
        How far apart the results are, and what was allowed.
    reached : float or None
        The ratio that a prototype reached; the bar is half of it. None: no bar.
    """

    name: str
    seconds: float
    agrees: bool
    agreement: str
    reached: float | None = None
    part: str = ""

    @property
    def bar(self) -> float | None:
        """Return the least ratio that is accepted."""
        return None if self.reached is None else self.reached / 2


@dataclass(frozen=True)
class Row:
    """One task, done the fast way, with its peers."""

    task: str
    seconds: float
    peers: list[Peer]

    @property
    def agrees(self) -> bool:
        """Return whether every peer's result agrees."""
        return all(peer.agrees for peer in self.peers)

    @property
    def meets_bars(self) -> bool:
        """Return whether every ratio reaches its bar."""
        return all(peer.bar is None or peer.seconds / self.seconds >= peer.bar for peer in self.peers)

    def show(self) -> None:
        """Print the row."""
        print(f"\n{self.task}: {duration(self.seconds)}")
        for peer in self.peers:
            ratio, bar = peer.seconds / self.seconds, ""
            if peer.bar is not None:
                verdict = "PASS" if ratio >= peer.bar else "MISS"
                bar = f"  bar {peer.bar:,.4g}x {verdict}"
            scaled = f"  (scaled up from {peer.part})" if peer.part else ""
            print(f"  {peer.name:44} {duration(peer.seconds):>10}  {ratio:8,.1f}x{bar}{scaled}")
            print(f"  {'':44} {'agrees' if peer.agrees else 'DISAGREES'}: {peer.agreement}")


class Contest(Protocol):
    """A module of a contest: `run` gives its rows as they are done."""

    def run(self) -> Iterable[Row]:
        """Do everything."""


def judged(contests: Iterable[Contest]) -> int:
    """Print every row; return the exit status: 1 if any result disagrees or any ratio is below its bar."""
    failed = []
    for contest in contests:
        for row in contest.run():
            row.show()
            if not (row.agrees and row.meets_bars):
                failed.append(row.task)
    if failed:
        print(f"\nFAILED: {'; '.join(failed)}")
    return 1 if failed else 0


def duration(seconds: float) -> str:
    """Write seconds with a unit."""
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


class Timed(NamedTuple):
    """Seconds of a call, and what it gave."""

    seconds: float
    result: Any


def timed(call: Callable[[], object], repeats: int = 1) -> Timed:
    """Return the shortest of some runs in seconds, and the last result."""
    shortest, result = np.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        shortest = min(shortest, time.perf_counter() - start)
    return Timed(shortest, result)


def warmed(call: Callable[[], object], repeats: int = 5) -> Timed:
    """Return the same after one run that does not count."""
    call()
    return timed(call, repeats)


def race_codes() -> np.ndarray:
    """Return (n,) the race of each image, 0 .. 6, of nearly equal sizes."""
    return np.arange(IMAGES) % RACES


@dataclass(frozen=True)
class Budget:
    """One task with what it may take at most."""

    task: str
    seconds: float
    most_seconds: float
    mib: float
    most_mib: float
    parts: dict[str, float]

    agrees = True
    """There is nothing to compare with."""

    def show(self) -> None:
        """Print what it took, the bars, and the share of each part."""
        print(f"\n{self.task}: {duration(self.seconds)}, {self.mib:,.0f} MiB at most")
        for name, took, most in (("seconds", self.seconds, self.most_seconds), ("MiB", self.mib, self.most_mib)):
            print(f"  bar {most:,.0f} {name} {'PASS' if took <= most else 'MISS'}")
        for name, seconds in self.parts.items():
            print(f"  {name:44} {duration(seconds):>10}")
