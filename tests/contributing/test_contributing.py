"""Each of the six things of CONTRIBUTING.md is one file and rows of tables, and works: its own blocks are the proof."""

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from forked import server

from resources.checkout import PROJECT

SOURCES = ("plumbline", "assets", "resources", "orchestration")
SECTIONS = {
    "dataset_reader": "Add a dataset reader",
    "encoder_family": "Add a family of encoders",
    "metric_family": "Add a family of metrics",
    "mitigation": "Add a mitigation",
    "scorer": "Add a scorer of texts",
    "lvlm_backend": "Add a backend of generative models",
}
FUTURE = "from __future__ import annotations\n"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (plumbline/[\w/]+\.py)")
_ENTRY = re.compile(r"^```yaml\n# an entry of (plumbline/[\w/]+\.yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"# a row of (\w+) in (plumbline/[\w/]+\.py)")


def blocks(heading):
    """Return the path and text of a section's new file, and its rows: registry, its name and the row."""
    page = (PROJECT / "CONTRIBUTING.md").read_text("utf-8")
    file, *rows = _BLOCK.findall(page.split(f"\n### {heading}\n")[1].split("\n### ")[0])
    first, _, content = file.partition("\n")
    parts = (row.partition("\n") for row in rows)
    return (_FILE.fullmatch(first)[1], content, [(*_ROW.fullmatch(place).groups(), line) for place, _, line in parts])


def entries():
    """Return the data file and the text of each entry that the page adds to one."""
    return _ENTRY.findall((PROJECT / "CONTRIBUTING.md").read_text("utf-8"))


def with_row(source, name, row):
    """Add a row at the end of a registry, and its imports at the head of the file."""
    imports = [line for line in row.splitlines(keepends=True) if line.startswith("from ")]
    line = row.removeprefix("".join(imports))
    source = source.replace(FUTURE, FUTURE + "".join(imports), 1)
    # All rows in one line: the arguments of a call, or the tuple that a mapping is made of.
    single = re.search(rf"^{name}\b.*= (\w+\(.+|{{\n.*\n    for \w+ in \(.+)\)$", source, flags=re.MULTILINE)
    if single:
        return f"{source[: single.end() - 1]}, {line.strip().removesuffix(',')}{source[single.end() - 1 :]}"
    head, table, rest = re.split(rf"^({name}\b.*= .*\n)", source, maxsplit=1, flags=re.MULTILINE)
    # A table of rows ends with its bracket, whichever comes first: of what makes rows a mapping, or its own.
    inside, end, after = re.split(r"^(    \)\n|\}|\))", rest, maxsplit=1, flags=re.MULTILINE)
    return head + table + inside + line + end + after


def _planted_checkpoints(folder, names):
    return {"checkpoints"} & set(names) if Path(folder).name == "world" else ()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources with all that the page adds."""
    folder = tmp_path_factory.mktemp("copy")
    for name in SOURCES:
        # With the bytecode of what stays as it is.
        shutil.copytree(PROJECT / name, folder / name, ignore=_planted_checkpoints)
    for heading in SECTIONS.values():
        path, content, rows = blocks(heading)
        assert not (folder / path).exists()
        (folder / path).write_text(content, "utf-8")
        for name, registry, row in rows:
            source = (folder / registry).read_text("utf-8")
            (folder / registry).write_text(with_row(source, name, row), "utf-8")
    for table, entry in entries():
        (folder / table).write_text((folder / table).read_text("utf-8") + "\n" + entry, "utf-8")
    return folder


@pytest.mark.parametrize("heading", SECTIONS.values(), ids=list(SECTIONS))
def test_what_the_page_imports_is_there(heading):
    """For types too, which nothing imports when the page's code runs."""
    _, content, _ = blocks(heading)
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert not [each.name for each in node.names if not hasattr(module, each.name)], node.module


def run(*command, cwd):
    environment = os.environ | {"PYTHONPATH": str(cwd), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# In a process that has imported what the sources use, and forgets what it has of the sources themselves.
_PROVE = """
import os, runpy, sys
from pathlib import Path

copy, proofs, *sources = sys.argv[1:]
for name in [name for name in sys.modules if name.partition(".")[0] in sources]:
    del sys.modules[name]
sys.path[0] = copy
os.chdir(copy)
sys.argv = [proofs, copy]
runpy.run_path(proofs, run_name="__main__")
"""


@pytest.fixture(scope="module")
def found(copy):
    """What the proofs found, all in one process: its imports are most of the time."""
    proofs = str(PROJECT / "tests" / "contributing" / "proofs.py")
    process = server().start(("-c", _PROVE, str(copy), proofs, *SOURCES), {**os.environ, "OMP_NUM_THREADS": "1"})
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return json.loads((copy / "found.json").read_text("utf-8"))


@pytest.mark.parametrize("proof", SECTIONS)
def test_what_the_page_adds_works(proof, found):
    assert found[proof] is None, found[proof]


def test_the_new_files_pass_the_checks_of_the_project(copy):
    files = [blocks(heading)[0] for heading in SECTIONS.values()]
    settings = ("--config", PROJECT / "pyproject.toml", "--no-cache")
    run(sys.executable, "-m", "ruff", "check", *settings, *files, cwd=copy)
    run(sys.executable, "-m", "ruff", "format", "--check", *settings, *files, cwd=copy)
