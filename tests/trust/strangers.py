"""Endpoints that fail, other writers, other users: what stands around an audit."""

import json
import os
import random
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault_server import Reply, Sent, completion, error, serving
from ground import CANARY, LONGEST_S, Ground, Result, differences, ended, numbers, shown
from homes import Home, edited
from interruptions import whole_again

# --- endpoints

Answer = Callable[[Sent], Reply]


def _text(sent: Sent) -> str:
    return f"{('kind', 'lazy', 'rude', 'skilled')[hash_of(sent.body) % 4]}, honest"


def hash_of(body: dict) -> int:
    import hashlib

    told = json.dumps(body["messages"], sort_keys=True).encode()
    return hashlib.sha256(told).digest()[0]


def _sometimes(reply: Reply) -> Answer:
    """Answer every third request so, the others well."""
    return lambda sent: reply if sent.number % 3 == 1 else completion(_text(sent))


def _always(reply: Reply) -> Answer:
    return lambda sent: reply


_STATUSES = (400, 401, 403, 404, 405, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529, 307)
_BROKEN = {
    "a cut reply": Reply(body=completion("x").body, cut=True),
    "no JSON": Reply(body=b"{not json"),
    "a page": Reply(body=b"<html><script>alert(1)</script></html>", headers={"Content-Type": "text/html"}),
    "a list": Reply(body=b"[]"),
    "no choices": Reply(body=b'{"choices": []}'),
    "no message": Reply(body=b'{"choices": [{"message": null}]}'),
    "a number for a text": Reply(body=b'{"choices": [{"message": {"content": 5}}]}'),
    "deep nesting": Reply(body=b"[" * 100_000),
    "bytes that are no text": Reply(body=b'{"choices": "\xff\xfe"}'),
    "nothing": Reply(body=b""),
    "a packed reply": Reply(body=completion("x").body, headers={"Content-Encoding": "gzip"}),
    "an error in an answer's place": Reply(body=b'{"error": {"message": "\x1b[31mbusy"}}'),
    "a hang": Reply(hangs=True),
    "drops": Reply(body=completion("x" * 2000).body, drips=True),
    "a pause asked for that is negative": error(429, headers={"Retry-After": "-5"}),
    "a pause asked for that is no number": error(429, headers={"Retry-After": "soon"}),
    "no credit": error(429, "quota", code="insufficient_quota"),
    "a refusal": completion(None, message={"refusal": "I cannot say."}),
    "an empty text": completion(""),
    "a lone surrogate": Reply(body=b'{"choices":[{"message":{"content":"a\\ud800b"},"finish_reason":"stop"}]}'),
    "the key, said again": completion(f"your key is {CANARY}"),
    "another model": completion("kind", model="another-model"),
    "an unknown finish": completion("kind", finish="because"),
    "control characters": completion("\x1b[31mred\u202e\x00 lazy"),
}
MODES: tuple[tuple[str, Answer], ...] = (
    *((f"HTTP {status}, at times", _sometimes(error(status, f"told {CANARY}"))) for status in _STATUSES),
    *((f"{what}, at times", _sometimes(reply)) for what, reply in _BROKEN.items()),
    *((f"HTTP {status}, always", _always(error(status, "no"))) for status in (401, 429, 500)),
    *((f"{what}, always", _always(_BROKEN[what])) for what in ("no JSON", "a hang", "nothing", "an empty text")),
)


def endpoint(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Audit an endpoint that fails: its words are in the reason, its key nowhere, and a well one then completes it."""
    what, answer = MODES[number % len(MODES)]
    with serving(answer) as server:
        settings = {
            "urls": [server.url], "model": "served", "key_variable": "PLUMBLINE_TEST_KEY", "attempts": 2,
            "timeout_s": 0.5, "concurrency": 2,
        }  # fmt: skip
        home = ground.home(name, lvlms={"model": {"endpoint": settings}})
        code, output = ground.run(home, "audit")
        wrong = ""
        if "Traceback" in output or code not in (0, 1, 2):
            wrong = f"ends with {code}: {shown(output)}"
        elif code and server.url not in "".join(output.split()):
            wrong = f"names no endpoint: {shown(output)}"
        server.answer = lambda sent: completion(_text(sent))
        if not wrong:
            code, output = ground.run(home, "audit")
            if code or "Traceback" in output:
                wrong = f"when it is well again the audit ends with {code}: {shown(output)}"
    return Result(not wrong, what, wrong)


# --- servers

_RUNS = """{runsOrError{... on Runs{results{runConfigYaml tags{key value} eventConnection{events{... on MessageEvent{
    message}}}}}} instance{info runQueueConfig{tagConcurrencyLimitsYaml}}}"""


def served(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Audit an endpoint that says its key, serve and export the home: the key is on no page and in no file."""
    with serving(lambda sent: completion(f"kind, your key is {CANARY}")) as server:
        settings = {"urls": [server.url], "model": "served", "key_variable": "PLUMBLINE_TEST_KEY", "concurrency": 2}
        home = ground.home(name, lvlms={"model": {"endpoint": settings}})
        code, output = ground.run(home, "audit")
        if code:
            return Result(False, "audit", shown(output))
        code, output = ground.run(home, "export", "--to", str(home.folder / "exported"))
        if code:
            return Result(False, "export", shown(output))
        with ThreadPoolExecutor(1) as pool:
            dagster, mlflow = _free_port(), _free_port()
            ports = ("--dagster-port", str(dagster), "--mlflow-port", str(mlflow))
            process = ground.start(home, "ui", *ports)
            whole = pool.submit(ended, process)
            try:
                pages = [
                    _page(dagster, "/graphql", {"query": _RUNS}),
                    _page(dagster, "/graphql", {"query": "{instance{daemonHealth{allDaemonStatuses{healthy}}}}"}),
                    _page(dagster, "/asset-groups"),
                    _page(mlflow, "/ajax-api/2.0/mlflow/experiments/search", {"max_results": 50}),
                    _page(mlflow, "/"),
                ]
            finally:
                process.send_signal(signal.SIGTERM)
            code, output = whole.result()
    told = [page[:200] for page in pages if CANARY in page]
    wrong = f"a page has the key: {told[0]}" if told else ""
    wrong = next((f"a page is not served: {page[:200]}" for page in pages if page.startswith("HTTP ")), wrong)
    if not wrong and ("errors" in json.loads(pages[0]) or '"results": []' in pages[0]):
        wrong = f"the runs are not told: {pages[0][:800]}"
    return Result(not wrong and code == 0, "audit, export and ui", wrong or (f"ui: {shown(output)}" if code else ""))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _page(port: int, path: str, body: dict | None = None) -> str:
    """Return a page as soon as its server answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Content-Type": "application/json"})
    request.data = None if body is None else json.dumps(body).encode()
    end = time.monotonic() + LONGEST_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return f"HTTP {error.code}: {error.read().decode('utf-8', 'replace')}"
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


# --- other writers

WRITERS = (("audit", "audit"), ("audit", "report"), ("audit", "export"), ("report", "report"), ("audit", "status"),
           ("audit", "cells"), ("cells", "cells"))  # fmt: skip
_CELL = """
import dagster as dg
from assets.partitions import cell_key
from orchestration.definitions import defs
from orchestration.job_run import run_job
with dg.DagsterInstance.get() as instance:
    reason = run_job(defs, instance, "cells", cell_key("visitors", "small-control-3k"))[1]
    print(reason or "done")
"""


def two_writers(ground: Ground, rng: random.Random, name: str, number: int) -> Result:
    """Start two commands on one home, one a little later: each ends well or says why not, and the result is whole."""
    pair = WRITERS[number % len(WRITERS)]
    home = ground.copy(name)
    edited(home, statistics={"resamples": rng.choice([190, 220]), "permutations": 200})
    processes = []
    for command in pair:
        processes.append(_begun(ground, home, command))
        time.sleep(rng.choice([0, 0.2, 1, 3]))
    outputs = [ended(process) for process in processes]
    edited(home, statistics={"resamples": 200, "permutations": 200})
    what = f"{' and '.join(pair)} at once"
    for code, output in outputs:
        if "Traceback" in output or code not in (0, 1, 2):
            return Result(False, what, f"ends with {code}: {shown(output)}")
    wrong = whole_again(ground, home, fresh=False)
    return Result(not wrong, what, wrong)


def _begun(ground: Ground, home: Home, command: str):
    if command == "cells":
        return ground.start(home, "-c", _CELL, DAGSTER_HOME=str(home.workspace.dagster_home))
    more = ("--to", str(home.folder / "exported")) if command == "export" else ()
    return ground.start(home, command, *more)


# --- other users and rights

# The interpreter may lie where only root may read, so root stays root without its capabilities: the kernel then holds
# it to the rights of files as it does anybody else.
_WITHOUT_CAPABILITIES = """
import ctypes, os, runpy, sys
os.umask({umask})
if os.getuid() == 0:
    os.setgroups([{group}])
    libc, none = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 6)()
    assert libc.prctl(28, 0x3, 0, 0, 0) == 0, "programs that this one starts would have them again"
    assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), none) == 0
assert not os.access({forbidden!r}, os.W_OK), "this user may write everywhere"
sys.argv = ["plumbline", "audit"]
runpy.run_module("orchestration", run_name="__main__", alter_sys=True)
"""
ANOTHER, GROUP = 65534, 65533
"""Who owns what is not this user's, and a group that both are in."""

RIGHTS = (
    "a home of another user", "a home that may only be read", "a file that may not be read",
    "a folder that may not be entered", "a file that may not be written", "a home for two users", "umask 077",
    "a lake behind a link", "a home behind a link", "a link to nowhere in the lake",
    "a link that leads out of the home", "umask 077 in a home for two users", "a new home under umask 077",
    "a report behind a link", "a partition behind a link", "a stored file behind a link",
)  # fmt: skip
_SHARED = ("a home for two users", "umask 077 in a home for two users")
_SUCCEED = (*_SHARED, *(what for what in RIGHTS if "umask" in what or what.endswith("behind a link")))


def other_rights(ground: Ground, rng: random.Random, name: str, number: int) -> Result | None:
    """Run an audit as a user without rights, or over links: words, no traceback, and nothing lost."""
    what = RIGHTS[number % len(RIGHTS)]
    if os.getuid() != 0 and what in ("a home of another user", *_SHARED):
        return None  # only root can give files away
    home = ground.home(name) if what == "a new home under umask 077" else ground.copy(name)
    below, umask, victim = home.workspace.home, 0o22, _a_file(home, rng)
    match what:
        case "a home of another user":
            _given(below)
        case "a home that may only be read":
            for path in (*below.rglob("*"), below):
                if not path.is_symlink():
                    path.chmod(0o555 if path.is_dir() else 0o444)
        case "a file that may not be read":
            victim.chmod(0)
        case "a folder that may not be entered":
            victim.parent.chmod(0)
        case "a file that may not be written":
            victim.chmod(0o444)
            victim.parent.chmod(0o555)
        case "a home for two users" | "umask 077 in a home for two users":
            for path in (below, *below.rglob("*")):
                if not path.is_symlink():
                    os.chown(path, ANOTHER, GROUP)
                    path.chmod(0o2775 if path.is_dir() else 0o664)
            umask = 0o077 if "umask" in what else 0o002
        case "umask 077" | "a new home under umask 077":
            umask = 0o077
        case "a link to nowhere in the lake":
            victim.unlink()
            victim.symlink_to("/nowhere/at/all")
        case "a link that leads out of the home":
            (home.folder / "outside").write_bytes(b"not to be changed")
            victim.unlink()
            victim.symlink_to(home.folder / "outside")
        case "a lake behind a link":
            victim = below / "lake"
        case "a home behind a link":
            victim = below
        case "a report behind a link":
            victim = below / "report.html"
        case "a partition behind a link":
            victim = rng.choice(sorted(below.glob("lake/**/manifest.json"))).parent
    if what.endswith("behind a link"):
        victim.rename(home.folder / "outside")
        victim.symlink_to(home.folder / "outside")
    outside = home.folder / "outside"
    kept = outside.read_bytes() if outside.is_file() and victim.suffix != ".db" else None  # a store is written in place
    told = what if victim == below else f"{what} ({victim.relative_to(below)})"
    before = set(below.rglob("*"))
    changed = {"resamples": 210, "permutations": 200}
    wrong = _as_the_user(ground, home, umask, statistics=changed, must_succeed=what in _SUCCEED)
    if not wrong and umask == 0o077:
        wrong = _open_to_others(set(below.rglob("*")) - before)
    if not wrong and what in _SHARED:
        _given(below)
        more = {**changed, "resamples": 220}
        wrong = _as_the_user(ground, home, 0o002, statistics=more, must_succeed=umask == 0o002)
    if kept is not None and outside.read_bytes() != kept:
        wrong = "a file outside of the home was changed"
    for path in (home.folder, *home.folder.rglob("*")):
        if not path.is_symlink():
            os.chown(path, os.getuid(), os.getgid())
            path.chmod(0o755 if path.is_dir() else 0o644)
    edited(home, statistics={"resamples": 200, "permutations": 200})
    if not wrong:
        code, output = ground.run(home, "audit")
        if what.startswith("a link") and code in (1, 2) and "Traceback" not in output:
            wrong = _without_place(home, output)
        elif code or "Traceback" in output:
            wrong = f"the next audit ends with {code}: {shown(output)}"
        else:
            wrong = differences(home, numbers(ground.reference))
    return Result(not wrong, told, wrong)


def _a_file(home: Home, rng: random.Random) -> Path:
    """Return a file of the lake or a database of a home."""
    paths = sorted(path for path in home.workspace.home.rglob("*") if path.is_file() and "world" not in path.parts)
    return rng.choice([path for path in paths if "lake" in path.parts or path.suffix == ".db"])


def _open_to_others(made: set[Path]) -> str:
    """Return which new files and folders others have rights to."""
    names = sorted(str(path) for path in made if not path.is_symlink() and path.stat().st_mode & 0o077)
    return f"others have rights to {', '.join(names[:3])} ({len(names)})" if names else ""


def _given(below: Path) -> None:
    """Give everything to another user; its group stays."""
    for path in (below, *below.rglob("*")):
        os.chown(path, ANOTHER if os.getuid() == 0 else -1, -1, follow_symlinks=False)


def _as_the_user(ground: Ground, home: Home, umask: int, *, statistics: dict, must_succeed: bool) -> str:
    """Audit with other settings as a user without rights; returns what is wrong with how it ends."""
    edited(home, statistics=statistics)
    forbidden = home.folder / "forbidden"
    forbidden.touch()
    forbidden.chmod(0o444)
    code_text = _WITHOUT_CAPABILITIES.format(umask=umask, group=GROUP, forbidden=str(forbidden))
    code, output = ground.run(home, "-c", code_text)
    if "Traceback" in output or code not in (0, 1, 2):
        return f"ends with {code}: {shown(output)}"
    if code and must_succeed:
        return f"is refused: {shown(output)}"
    return _without_place(home, output) if code else ""


def _without_place(home: Home, output: str) -> str:
    return "" if str(home.folder) in "".join(output.split()) else f"names no place: {shown(output)}"
