"""A version moves with all that can change a result, and with nothing else."""

import ast
import os
import shutil

import pytest

from plumbline.metrics.disparities import max_skew
from plumbline.metrics.registry import FAMILIES
from plumbline.provenance import code_versions
from plumbline.provenance.code_versions import DESCRIPTIONS, PACKAGE, closure, code_parts, code_version, read_source

OUTCOMES = FAMILIES["outcome_metrics"].compute


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x = 1\n", "# why\nx = 1"),
        ('"""About."""\nx = 1', '"""Other words."""\nx = (1)'),
        ('def f():\n    """About."""\n    return 1', "def f():\n    return 1"),
        ('class A:\n    """About."""\n    b = 1', "class A:\n\n    b = 1"),
    ],
)
def test_words_about_the_code_are_not_the_code(first, second):
    assert read_source(first).digest == read_source(second).digest


@pytest.mark.parametrize(
    ("first", "second"), [("x = 1", "x = 2"), ("x = 'a'", "x = 'b'"), ("def f(): return 1", "def g(): return 1")]
)
def test_any_other_change_is(first, second):
    assert read_source(first).digest != read_source(second).digest


def test_imports_inside_functions_and_data_files_count():
    source = read_source(
        'from plumbline.digests import digest_file\nNAME = "person_words"\n'
        'def f():\n    import scipy.stats\n    return import_class(x, below="plumbline.scorers")'
    )
    assert {"plumbline.digests.digest_file", "scipy.stats"} <= set(source.imports)
    assert source.files == ["catalog/person_words.yaml"] and source.loads_below == ["plumbline.scorers"]


def test_a_family_depends_on_what_it_reaches_and_on_nothing_beside_it():
    reached = closure(OUTCOMES.__module__)
    assert {"plumbline.metrics.disparities", "plumbline.statistics.permutation", "plumbline.reasons"} <= set(reached)
    assert not [
        name for name in reached if name.startswith(("plumbline.report", "plumbline.world", "plumbline.language"))
    ]
    parts = code_parts(OUTCOMES)
    assert {"python", "numpy", "scipy", "polars", "reasons.yaml"} <= set(parts)
    assert "torch" not in parts and not [part for part in parts if part.startswith("catalog/suites")]


def test_classes_that_are_loaded_by_name_are_reached():
    reached = closure("plumbline.datasets.registry")
    assert {"plumbline.datasets.fairface", "plumbline.datasets.celeba", "plumbline.datasets.folder"} <= set(reached)
    assert "plumbline.encoders.open_clip" in closure("plumbline.encoders.folders")


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """Return a copy of what metrics can reach of the package, and of language, with what was read of it."""
    folder = tmp_path_factory.mktemp("part") / PACKAGE.name
    for each in ("metrics", "statistics", "catalog", "datasets", "language"):
        shutil.copytree(PACKAGE / each, folder / each, ignore=shutil.ignore_patterns("__pycache__"))
    for path in PACKAGE.glob("*.*"):
        shutil.copy(path, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_versions, "PACKAGE", folder)
        code_versions._sources.cache_clear()
        code_version(OUTCOMES)
    return folder


@pytest.fixture
def copied(part, tmp_path, monkeypatch):
    """Return a copy that may be changed; versions are then computed of it."""
    shutil.copytree(part, tmp_path / PACKAGE.name)
    monkeypatch.setattr(code_versions, "PACKAGE", tmp_path / PACKAGE.name)
    code_versions._sources.cache_clear()
    yield tmp_path / PACKAGE.name
    code_versions._sources.cache_clear()


def changed(copied, name, old, new):
    path = copied / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    code_versions._sources.cache_clear()


def test_a_change_moves_the_versions_of_those_that_reach_it(copied):
    computes = {name: family.compute for name, family in FAMILIES.items()}
    before = {name: code_version(compute) for name, compute in computes.items()}
    assert before == {name: code_version(compute) for name, compute in computes.items()}

    def moved():
        return {name for name, compute in computes.items() if code_version(compute) != before[name]}

    changed(copied, "metrics/disparities.py", "\n\n\n", "\n\n\n# a comment\n")
    assert not moved()
    changed(copied, "language/words.py", "\nimport ", "\nimport this\nimport ")
    assert not moved()
    changed(copied, "metrics/disparities.py", "smoothing=0.5", "smoothing=0.25")
    reaching = {n for n, compute in computes.items() if "plumbline.metrics.disparities" in closure(compute.__module__)}
    assert moved() == reaching and "outcome_metrics" in reaching and reaching != set(computes)


def test_wording_of_reasons_is_part_of_the_results(copied):
    before = code_version(max_skew)
    path = copied / "reasons.yaml"
    path.write_text(path.read_text() + "\n# changed\n")
    assert code_version(max_skew) != before


def test_a_new_library_or_python_moves_it(monkeypatch):
    before = code_version(max_skew)
    monkeypatch.setattr(code_versions.platform, "python_version_tuple", lambda: ("3", "99", "0"))
    assert code_version(max_skew) != before
    monkeypatch.undo()
    code_versions._library.cache_clear()
    monkeypatch.setattr(code_versions, "library_version", lambda _: "99")
    assert code_version(max_skew) != before
    code_versions._library.cache_clear()


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return a package of two modules, of which versions are computed, and what was read of it."""
    folder = tmp_path / PACKAGE.name
    folder.mkdir()
    (folder / "first.py").write_text("from plumbline.second import NUMBER\n")
    (folder / "second.py").write_text("NUMBER = 2\n")
    monkeypatch.setattr(code_versions, "PACKAGE", folder)
    code_versions._sources.cache_clear()
    yield folder, closure("plumbline.first")
    code_versions._sources.cache_clear()


def read_again(monkeypatch):
    """Read the small package as another process would; return it, and how many modules were read anew."""
    anew = []
    monkeypatch.setattr(code_versions, "read_source", lambda *given: anew.append(given) or read_source(*given))
    code_versions._sources.cache_clear()
    return closure("plumbline.first"), len(anew)


def test_what_was_read_is_kept_for_the_next_process(small, monkeypatch):
    _, before = small
    assert set(before) == {"plumbline.first", "plumbline.second"} and read_again(monkeypatch) == (before, 0)


def test_a_damaged_or_unwritable_cache_is_no_obstacle(small, monkeypatch):
    folder, before = small
    (folder / "__pycache__" / "code_versions.json").write_bytes(b"{")
    monkeypatch.setattr(code_versions, "commit_bytes", lambda *_: (_ for _ in ()).throw(PermissionError()))
    assert read_again(monkeypatch) == (before, 2)


@pytest.mark.parametrize("content", ["[]", "null", '{"x": 1}'])
def test_a_cache_of_another_form_is_read_anew(small, monkeypatch, content):
    folder, before = small
    (folder / "__pycache__" / "code_versions.json").write_text(content)
    assert read_again(monkeypatch) == (before, 2)


def test_a_change_that_keeps_size_and_time_is_seen(copied):
    before = code_version(OUTCOMES)
    path = copied / "metrics" / "disparities.py"
    times = path.stat()
    changed(copied, "metrics/disparities.py", "smoothing=0.5", "smoothing=0.7")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size and code_version(OUTCOMES) != before


def test_the_shell_that_calls_and_files_that_are_named_count_too(copied):
    shell = copied.parent / "assets" / "cells.py"
    shell.parent.mkdir()
    shell.write_text("x = 1")
    with_shell = code_version(OUTCOMES, shells=["assets.cells"])
    described = code_version(OUTCOMES, files=[DESCRIPTIONS])
    assert len({with_shell, described, code_version(OUTCOMES)}) == 3
    shell.write_text("x = 2")
    changed(copied, DESCRIPTIONS, "\n", "\n# changed\n")
    assert code_version(OUTCOMES, shells=["assets.cells"]) != with_shell
    assert code_version(OUTCOMES, files=[DESCRIPTIONS]) != described


def test_nothing_else_is_imported_by_a_name_that_is_computed():
    """Else a static look at imports would miss it: `import_class` with a constant `below` is the one way."""
    for path in PACKAGE.rglob("*.py"):
        if path.name in ("imports.py", "own_code.py"):  # own code is versioned by its own files
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if called in ("import_module", "__import__", "exec", "eval", "spec_from_file_location", "runpy"):
                constant = [a for a in node.args if isinstance(a, ast.Constant)]
                is_method = isinstance(node.func, ast.Attribute) and called in ("eval", "exec")
                assert constant or is_method, f"{path}:{node.lineno} imports what no one can see"
            if called == "import_class":
                [below] = [word.value for word in node.keywords if word.arg == "below"]
                assert isinstance(below, ast.Constant), f"{path}:{node.lineno}"
