"""A constant of a module is changed: what comes out different in a cold computation is computed again by an audit."""

import ast
import random
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from homes import make_home

from assets.cells import CELL_TABLES
from assets.recorded import CODE_VERSIONS
from orchestration.definitions import defs  # noqa: F401
from plumbline.provenance.code_versions import closure, parts_of
from resources.checkout import PROJECT

# A dozen audits, and a cold one each.
pytestmark = pytest.mark.slow

MODEL, DATASET, EDITS = "small-control-3k", "visitors", 12
ASSETS = ("records", "extended_records", "metric_table", *CELL_TABLES, "valence_geometry")
TABLES = (*ASSETS, "label_error", "valence_geometry_words")
"""What is compared: rows, without the identities of cells and audits."""
_IDENTITIES = ("cell_id", "audit_id")


def audit_settings():
    entry = yaml.safe_load((PROJECT / "audit.yaml").read_text())["datasets"][DATASET]
    return {
        "labeller": MODEL,
        "statistics": {"resamples": 200, "permutations": 200},
        "datasets": {DATASET: entry},
        "encoders": {MODEL: {"address": f"local-dir:plumbline/world/checkpoints/{MODEL}"}},
        "audit": [{"suites": ["trident", "crime", "communion", "agency"]}],
    }


def editable():
    """Return the modules that cheap results are computed by, without those that embeddings are computed by too."""
    parts = [parts_of(CODE_VERSIONS[name]) or {} for name in ASSETS]
    dear = closure("plumbline.encoders.folders", "plumbline.encoders.embedding")
    below = ("assets.", "plumbline.datasets.", "plumbline.metrics.", "plumbline.statistics.")
    return sorted(name for name in set().union(*parts) - dear.keys() if name.startswith(below))


def edits(module):
    """Return every (line, column, text, other text) of a module: its numbers, each with another one."""
    path = Path(str(import_module(module).__file__))
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.lineno == node.end_lineno:
            other = node.value + 1 if type(node.value) is int else node.value * 1.5 + 0.01
            found.append((node.lineno, node.col_offset, node.end_col_offset, repr(other)))
    return path.relative_to(PROJECT), found


class Copied:
    """A copy of the project that can be edited, and homes that are audited by it."""

    def __init__(self, folder):
        self.folder, self.project = folder, folder / "project"
        for name in ("plumbline", "assets", "resources", "orchestration"):
            shutil.copytree(PROJECT / name, self.project / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in PROJECT.iterdir():
            if path.is_file():
                shutil.copy(path, self.project)
        self.base = self.home("base")
        assert self.audit(self.base) == 0

    def home(self, name, *, like=None):
        """Make a home: with all of another's, or with its embeddings alone, which no edit here changes."""
        home = make_home(self.folder / name, **audit_settings())
        if like is not None:
            shutil.copytree(like.workspace.home / "lake" / "embeddings", home.workspace.home / "lake" / "embeddings")
        return home

    def audit(self, home):
        done = subprocess.run(
            [sys.executable, "-m", "orchestration", "audit"],
            cwd=self.project,
            env={**home.environment, "PYTHONPATH": str(self.project)},
            capture_output=True,
            check=False,
        )
        return done.returncode

    def edit(self, place, edit):
        """Change a number of a module; return what it said before."""
        path, (line, begin, end, other) = self.project / place, edit
        before = path.read_text()
        lines = before.splitlines(keepends=True)
        encoded = lines[line - 1].encode()
        lines[line - 1] = (encoded[:begin] + other.encode() + encoded[end:]).decode()
        path.write_text("".join(lines))
        return before


def rows(home):
    """Return the rows of every compared table, by name."""
    lake, found = home.workspace.lake, {}
    for name in TABLES:
        places = lake.folder(name).rglob("manifest.json") if lake.folder(name).exists() else ()
        for place in places:
            partition = "|".join(place.parent.relative_to(lake.root).parts[1:])
            frame = lake.read_table(name, partition=partition)
            found[name, partition] = frame.drop([column for column in _IDENTITIES if column in frame.columns])
    return found


def differing(one, other):
    names = one.keys() | other.keys()
    return {name for name in names if name not in one or name not in other or not one[name].equals(other[name])}


@pytest.mark.parametrize("seed", [0])
def test_what_comes_out_different_cold_is_computed_again(seed, tmp_path):
    rng, copied = random.Random(seed), Copied(tmp_path)
    before, moved, tried = rows(copied.base), {}, 0
    for number, module in enumerate(rng.sample(editable(), k=3 * EDITS)):
        place, possible = edits(module)
        if tried == EDITS or not possible:
            continue
        was = copied.edit(place, chosen := rng.choice(possible))
        cold = copied.home(f"cold{number}", like=copied.base)
        if copied.audit(cold) == 0:  # else nothing can be computed by this code
            tried += 1
            later = tmp_path / f"later{number}"
            shutil.copytree(copied.base.folder, later)
            incremental = type(cold)(later)
            assert copied.audit(incremental) == 0
            expected = rows(cold)
            assert differing(expected, rows(incremental)) == set(), f"{place} {chosen}"
            moved[module] = differing(expected, before)
            shutil.rmtree(later)
        shutil.rmtree(cold.folder)
        (copied.project / place).write_text(was)
    assert tried == EDITS
    assert any(moved.values()), "nothing that was changed is seen in a table"
