"""What holds for all tests."""

import fcntl
import gc
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings
from written_pictures import encoded, noise

from resources.checkout import PROJECT

# Until everything is imported: see `pytest_collection_finish`.
gc.disable()

# Published files that cannot lie in the repository: beside it, or where the variable says.
REAL_DATA = Path(os.environ.get("PLUMBLINE_SHARED_DATA", PROJECT.parent / "shared" / "data"))

# `make test` draws the same examples every time, so that what fails there is what was changed; `make test-all` draws
# new ones. How long an example takes is a matter of what else the machine does.
_HOWEVER_LONG = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, max_examples=50, **_HOWEVER_LONG)
settings.register_profile("new", max_examples=500, **_HOWEVER_LONG)
settings.load_profile("same")


def pytest_configure():
    """Write to memory, and hear of Ctrl-C.

    SQLite waits for a disk whenever it commits, and the homes of the tests commit a lot. Tests send themselves Ctrl-C,
    which a shell lets what it starts in the background ignore.
    """
    if (folder := _folder_in_memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", folder)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _folder_in_memory() -> str | None:
    """Return the system's folder in memory if it has room for what all tests write, and lets them run programs."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return None
    enough = disk.f_bavail * disk.f_frsize > 4 << 30
    return "/dev/shm" if enough and not disk.f_flag & os.ST_NOEXEC else None


# One worker imports what all audits need; the other has something to do meanwhile.
_FIRST = ("test_audit.py", "test_automation.py")
# It goes on from a home that the first makes.
_LATER = "test_audit_diff.py"


def pytest_collection_modifyitems(items):
    """Begin with the whole audits: each takes a minute, and a worker that begins one last is waited for."""

    def place(item):
        parts = item.path.parts
        if parts[-1] in _FIRST:
            return _FIRST.index(parts[-1])
        return len(_FIRST) + (parts[-1] == _LATER) + 2 * ("end_to_end" not in parts)

    items.sort(key=place)


def pytest_collection_finish():
    """Let the garbage collector run seldom, and leave alone what imports made.

    Python collects often by how many objects there are, and the modules of this project's libraries are a million of
    them: a fifth of the time of the report's tests went into walking through them.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_power_cut():
    """Let nothing wait for the disk; tests of what is flushed when put their own in this place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> Path:
    """Return a folder that all workers of this run share."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(scope="session")
def planted_base(run_folder) -> Path:
    """Return where the planted folders of this run are; nothing may be changed in them."""
    return run_folder / "planted"


@pytest.fixture(scope="session")
def made_once(run_folder) -> Callable[..., tuple[Path, object]]:
    """Return a function that has a folder made by whichever worker asks first: the others wait, and read it.

    It takes a name and what fills the folder of that name, whose result, as JSON, is given back with the folder.
    Whoever changes what is in it copies it first.
    """

    def made(name: str, fill: Callable[[Path], object]) -> tuple[Path, object]:
        folder, result = run_folder / name, run_folder / f"{name}.json"
        with (run_folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                result.write_text(json.dumps(fill(folder)))
        return folder, json.loads(result.read_text())

    return made


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder with a disk of its own, of 4 KiB, and what mounts it anew with options; needs leave to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder]
        return subprocess.run(command, capture_output=True).returncode == 0

    if not mount("size=4k"):
        pytest.skip("this user may not mount")
    yield folder, lambda *options: mount("remount", *options)
    # Lazily: what met the full disk may still have files of it open.
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def one_thread():
    """Keep torch on one thread: for tiny models, threads wait for each other longer than they work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def converted_here(monkeypatch):
    """Let pickled weights be converted in this process: one of its own imports torch, which takes two seconds."""
    from plumbline.checkpoints import conversion

    def run(command, **_):
        try:
            conversion._convert(*map(Path, command[-2:]))
        except Exception as error:
            return subprocess.CompletedProcess(command, 1, "", conversion._reason(error))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(conversion, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))


@pytest.fixture(scope="session")
def jpeg() -> Callable[..., bytes]:
    """Return a function from a seed to the bytes of a small JPEG that no other seed gives."""

    def encode(seed: int = 0, **options: object) -> bytes:
        return encoded(noise(seed), "JPEG", **options)

    return encode


@pytest.fixture(scope="session")
def real_file() -> Callable[[str], Path]:
    """Return a function from the name of a published file to its path; the test is skipped without it."""

    def find(name: str) -> Path:
        path = REAL_DATA / name
        if not path.is_file():
            pytest.skip(f"the published {name} is not there: put it into ../shared/data or set PLUMBLINE_SHARED_DATA")
        return path

    return find


_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_INSTALL = "the browser tests need Chromium: apt-get install chromium, or its path in PLUMBLINE_CHROMIUM"


@pytest.fixture(scope="module")
def browser():
    """Return a running browser; skip without one, which in CI is a failure."""
    path = os.environ.get("PLUMBLINE_CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None and os.environ.get("CI"):
        pytest.fail(_INSTALL)
    if path is None:
        pytest.skip(_INSTALL)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield running
        running.close()
