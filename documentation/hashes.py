"""The digests of all that `make audit` installs: made anew by a resolver, and held against what pip installed.

`hashes.txt` has, in pip's own syntax, names, versions and the SHA-256 of every file that the index has of them, for all
supported Pythons and platforms. Nothing but the standard library is needed, so that no installed package is run before
it was checked.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CONSTRAINTS, HASHES = PROJECT / "constraints.txt", PROJECT / "hashes.txt"
OLDEST = "3.11.5"
"""Of Python: before it, what builds the documentation has no release with these versions."""
_HEAD = (
    "# Names, versions and the SHA-256 of all their files, made by `make hashes` from constraints.txt and\n"
    "# pyproject.toml. `make audit` holds against it what pip installed; see docs/decisions/0075.\n"
)


def locked(text: str) -> dict[tuple[str, str], set[str]]:
    """Return (name, version) -> SHA-256 of the files, of a list in pip's syntax."""
    found = {}
    for entry in re.sub(r"(?m)^#.*\n", "", text).replace("\\\n", " ").splitlines():
        if match := re.match(r"([\w.-]+)==([^\s;]+)", entry):
            found[normal(match[1]), match[2]] = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
    return found


def normal(name: str) -> str:
    """Return the name of a distribution as indexes have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def unlocked(report: Mapping, lock: Mapping[tuple[str, str], set[str]]) -> Iterator[tuple[str, bool]]:
    """Yield what pip installed that is not locked, in words, and whether that is to be refused.

    A version with a local label, such as `2.13.0+cpu`, is a build that somebody chose to take from elsewhere: it is
    named. The project itself is read where it lies.

    Parameters
    ----------
    report : mapping
        What `pip install --report` wrote.
    lock : mapping
        From `locked`.
    """
    for each in report["install"]:
        name, version = normal(each["metadata"]["name"]), each["metadata"]["version"]
        source = each["download_info"]
        if "dir_info" in source and name == "plumbline":
            continue
        digest = source.get("archive_info", {}).get("hashes", {}).get("sha256")
        if (name, version) in lock and digest in lock[name, version]:
            continue
        if "+" in version and (name, version.partition("+")[0]) in lock:
            yield f"{name} {version} is another build than the locked one, sha256 {digest}", False
        elif (name, version) in lock:
            yield f"{name} {version} has other bytes than are locked, sha256 {digest}", True
        else:
            yield f"{name} {version} is not in hashes.txt", True


def check(report: Path) -> int:
    """Say what was installed that is not locked; 1 where that is not to be used."""
    lock, refused = locked(HASHES.read_text("utf-8")), False
    try:
        installation = json.loads(report.read_text("utf-8"))
    except (OSError, ValueError):
        installation = {"install": []}
    if not installation["install"]:  # this project itself is always installed
        print(f"pip did not tell what it installed: {report}", file=sys.stderr)
        refused = True
    for words, wrong in unlocked(installation, lock):
        print(words, file=sys.stderr)
        refused |= wrong
    if refused:
        print("The environment is removed. Ask where these files come from.", file=sys.stderr)
    return int(refused)


def make() -> int:
    """Resolve for all supported Pythons and platforms, with the versions of `constraints.txt`, and keep the digests."""
    resolver = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if resolver is None:
        print("uv is needed: pip install uv", file=sys.stderr)
        return 2
    command = [
        resolver, "pip", "compile", "pyproject.toml", "--all-extras", "--universal", "--generate-hashes", "--quiet",
        "--no-annotate", "--no-header", "--constraints", CONSTRAINTS.name, "--python-version", OLDEST,
    ]  # fmt: skip
    made = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603
    HASHES.write_text(_HEAD + made, "utf-8")
    print(f"{len(locked(made))} distributions, {made.count('--hash=')} files: {HASHES.name}")
    return 0


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[2])) if sys.argv[1] == "check" else make())
