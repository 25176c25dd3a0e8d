"""Commands that are killed, interrupted or refused by the system, and the audit after them."""

import errno
import random
import re
import signal
import time

import yaml
from faults import (
    CLOCK,
    FAIL_FROM_THEN,
    FAIL_ONCE,
    KILL_AFTER,
    KILL_BEFORE,
    KILL_TORN,
    Armed,
    Fault,
    Point,
    matching,
    within,
)  # fmt: skip
from ground import Ground, Result, aged, differences, ended, litter, numbers, shown
from homes import Home, edited

AREAS = (
    "*/lake/records/*", "*/lake/embeddings/*", "*/lake/answers/*", "*/lake/scores/*", "*/lake/*_metrics/*",
    "*/lake/metric_table/*", "*/lake/checks/*", "*/lake/builds/*", "*/lake/mitigation_fit/*", "*/lake/*",
    "*/quality/*", "*/mlflow.db*", "*/artifacts/*", "*/dagster/history/runs.db*", "*/dagster/history/runs/*",
    "*/explanations/*", "*/report.html", "*/identities/*", "*/sizes/*", "*",
)  # fmt: skip
"""Where an audit writes: a trial is drawn from each in turn, since most calls are Dagster's."""

CHANGES = ("write", "create", "rename", "sync", "unlink", "truncate", "link", "mkdir", "open")


def drawn_point(ground: Ground, rng: random.Random, number: int, calls: tuple[str, ...] = CHANGES) -> Point:
    """Return a kind of call that the reference made: areas in turn, in each any kind with equal probability."""
    for area in AREAS[number % len(AREAS) :] + AREAS:
        found = [point for point in matching(ground.points, area) if point.call in calls]
        if found:
            return rng.choice(found)
    raise AssertionError("the reference wrote nothing")


def whole_again(ground: Ground, home: Home, *, fresh: bool = True) -> str:
    """Run the audit to its end, and return what is not as if nothing had happened; "" where all is.

    In a home that is not fresh another audit was made before, with its own forward passes and runs.
    """
    done = home.shards()
    aged(home)
    code, resumed = ground.run(home, "audit")
    if code != 0 or "Traceback" in resumed:
        return f"the next audit ends with {code}: {resumed[-1500:]}"
    if fresh and (repeated := _repeated(ground, done, resumed)):
        return repeated
    return differences(home, numbers(ground.reference)) or litter(home, ground.reference if fresh else None)


def _repeated(ground: Ground, done: list[int], resumed: str) -> str:
    """Return how many forward passes were made twice, where these are more than a shard's."""
    whole = ground.reference.shards()
    made = re.search(r"(\d+) forward passes", resumed)
    again = int(made.group(1)) + sum(done) - sum(whole) if made else 0
    return f"{again} forward passes were repeated" if again > max(whole, default=0) else ""


def kill_at_any_time(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Kill an audit after a random share of the time that one takes."""
    home = ground.home(name)
    seconds = rng.uniform(0, 1) * ground.seconds
    process = ground.start(home, "audit")
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    ended(process)
    return _result(f"killed after {seconds:.2f} s", whole_again(ground, home))


def kill_at_a_call(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Kill a first audit before, in the middle of or after one call."""
    point = drawn_point(ground, rng, number)
    torn = [KILL_TORN] if point.call == "write" else []
    fault = Fault(point, rng.randint(1, point.times), rng.choice([KILL_BEFORE, KILL_AFTER, *torn]))
    return _met(ground, ground.home(name), fault, "audit")


def kill_a_later_command(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Kill an audit after a change, a report, an export or a comparison, in a finished home."""
    home, command = ground.copy(name), ("audit", "report", "export", "audit")[number % 4]
    title = yaml_title(home)
    if command == "audit":
        edited(home, title="Another title", statistics={"resamples": 210, "permutations": 200})
    arguments = ("export", "--to", str(home.folder / "exported")) if command == "export" else (command,)
    point = drawn_point(ground, rng, number // 4)
    fault = Fault(point, rng.randint(1, max(1, point.times // 4)), rng.choice([KILL_BEFORE, KILL_AFTER]))
    *_, fired = with_fault(ground, home, fault, *arguments)
    edited(home, title=title, statistics={"resamples": 200, "permutations": 200})
    what = f"{command}: {fault}" + ("" if fired else ", which did not come")
    return _result(what, whole_again(ground, home, fresh=False))


def yaml_title(home: Home) -> str:
    return yaml.safe_load(home.workspace.audit_path.read_text())["title"]


def with_fault(ground: Ground, home: Home, fault: Fault, *arguments: str) -> tuple[int, str, int]:
    """Run a command that meets a fault in its home; returns exit code, output and how many calls met it."""
    with Armed(home.workspace.home, within(fault, home.workspace.home)) as armed:
        code, output = ground.run(home, *arguments, **armed.environment)
        return code, output, armed.fired


def _met(ground: Ground, home: Home, fault: Fault, *arguments: str) -> Result:
    code, output, fired = with_fault(ground, home, fault, *arguments)
    what = f"{fault}" + ("" if fired else ", which did not come")
    if fired and code != -signal.SIGKILL:
        return _result(what, f"ended with {code}, not by the kill: {shown(output)}")
    return _result(what, whole_again(ground, home))


ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EPERM, errno.EACCES, errno.EDQUOT)


def refused_by_the_system(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Let one call, or all from one on, be refused: the audit says what and where, and the next is whole."""
    home, error = ground.home(name), ERRORS[number % len(ERRORS)]
    calls = ("create", "open", "readopen") if error == errno.EMFILE else (*CHANGES, "readopen", "read")
    if error in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
        calls = CHANGES
    point = drawn_point(ground, rng, number // len(ERRORS), calls)
    action = (
        FAIL_FROM_THEN
        if error in (errno.ENOSPC, errno.EROFS, errno.EDQUOT)
        else rng.choice([FAIL_ONCE, FAIL_FROM_THEN])
    )
    fault = Fault(point, rng.randint(1, point.times), action, error=error)
    if action == FAIL_FROM_THEN and rng.random() < 0.5:
        # From this call on, on every file: a disk that is full, or gone read-only.
        fault = Fault(
            Point("[!r]*", "*/*", sum(p.times for p in ground.points)), rng.randint(1, 3000), action, error=error
        )
    code, output, fired = with_fault(ground, home, fault, "audit")
    what = f"{fault}" + ("" if fired else ", which did not come")
    wrong = ""
    if "Traceback" in output:
        wrong = f"a traceback: {shown(output)}"
    elif code not in (0, 1, 2):
        wrong = f"ended with {code}: {shown(output)}"
    elif code != 0 and not _names_the_place(home, output):
        wrong = f"says no place: {shown(output)}"
    return _result(what, wrong or whole_again(ground, home))


def _names_the_place(home: Home, output: str) -> bool:
    return str(home.folder) in re.sub(r"\s+", "", output)


def clock(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Let the wall clock jump in the middle of an audit."""
    home = ground.home(name)
    jump = rng.choice([-20 * 365 * 86400, -86400, -3600, -1, 3600, 86400, 10 * 365 * 86400])
    point = Point("*", "*/*", sum(p.times for p in ground.points))
    fault = Fault(point, rng.randint(1, point.times // 2), CLOCK, clock=jump)
    code, output, _ = with_fault(ground, home, fault, "audit")
    wrong = f"ended with {code}: {shown(output)}" if code or "Traceback" in output else ""
    return _result(str(fault), wrong or whole_again(ground, home))


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130


def asked_to_stop(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Send a signal at a random moment: the audit says that it stops, and ends as interrupted, or by the signal."""
    home, sent = ground.home(name), SIGNALS[number % len(SIGNALS)]
    seconds = rng.uniform(0.05, 1) * ground.seconds
    process = ground.start(home, "audit")
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(sent)
    code, output = ended(process)
    what, wrong = f"{sent.name} after {seconds:.2f} s", ""
    if code not in (0, INTERRUPTED, -sent):
        wrong = f"ended with {code}: {shown(output)}"
    elif "Traceback" in output:
        wrong = f"a traceback: {shown(output)}"
    return _result(what, wrong or whole_again(ground, home))


def _result(what: str, why: str) -> Result:
    return Result(not why, what, why)
