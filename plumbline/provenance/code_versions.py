"""Versions of results that raise themselves: digests of all the code and data that a function can reach.

A result that is cheap to compute again is out of date as soon as anything that makes it has changed, and nobody has to
remember to raise a number. A docstring, a comment or the layout of a line changes no version. For a function count:

- its module and every module of `plumbline` that it imports, directly or by way of others, inside functions too;
- for a module that loads classes by name (`plumbline.imports.import_class`), every module below the package it names;
- data files of the package that these modules name;
- versions of the libraries they import that compute, decode or draw, and of Python.

What a result is computed *of* (suites, records, checkpoints, settings) is not code: assets keep its digests beside it.
"""

from __future__ import annotations

import ast
import contextlib
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from upath import UPath

from plumbline.digests import digest_bytes, digest_file, digest_json
from plumbline.storage.files import commit_bytes
from plumbline.version import library_version

PACKAGE = Path(__file__).parents[1]
_ROOT = PACKAGE.name
DESCRIPTIONS = "catalog/metrics.yaml"
"""What metrics say of themselves: most families only pass it on to people, so that it counts where it is named."""

# Read by name from what an audit asks for, whose digests assets keep.
_INPUTS = ("catalog/suites", DESCRIPTIONS)
_SUFFIXES = ("", ".yaml", ".csv", ".txt")
_BY_NAME = "import_class"
_LIBRARIES = {
    name: name
    for name in (
        "numpy", "scipy", "polars", "pyarrow", "torch", "torchvision", "transformers", "tokenizers",
        "timm", "simplejpeg", "jinja2",
    )
} | {"PIL": "pillow", "open_clip": "open_clip_torch", "vl_convert": "vl-convert-python"}  # fmt: skip
"""Imported module -> distribution, of libraries that compute, decode or draw."""


@dataclass(frozen=True)
class Source:
    """What one module says, as far as it can change a result.

    Attributes
    ----------
    digest : str
        Of its syntax tree, without docstrings.
    imports : list of str
        Modules, or names within modules, as they are written.
    loads_below : list of str
        Packages of which it loads classes by name.
    files : list of str
        Data files and folders that a string in it names, relative to the package.
    """

    digest: str
    imports: list[str]
    loads_below: list[str]
    files: list[str]


def code_version(*functions: Callable[..., Any] | str, shells: Sequence[str] = (), files: Sequence[str] = ()) -> str:
    """Return the version of the results of some functions: 16 hexadecimal digits; see `code_parts`."""
    parts = code_parts(*functions, shells=shells, files=files)
    version = digest_json(parts)[:16]
    _PARTS[version] = parts
    return version


_PARTS: dict[str, dict[str, str]] = {}


def parts_of(version: str) -> dict[str, str] | None:
    """Return what a version of this process is made of; None of a declared one."""
    return _PARTS.get(version)


def code_parts(
    *functions: Callable[..., Any] | str, shells: Sequence[str] = (), files: Sequence[str] = ()
) -> dict[str, str]:
    """Return what a version is made of: module, data file, library or `python` -> digest or version.

    Parameters
    ----------
    functions : callables of this package, or modules by name
    shells : sequence of str
        Modules outside the package that call them, such as `assets.cells`, or a module of which little is called:
        each counts alone, without its imports.
    files : sequence of str
        Further data files, relative to the package.
    """
    modules = closure(*(each if isinstance(each, str) else each.__module__ for each in functions))
    parts = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in shells:
        path = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
        parts[name] = syntax_digest(path.read_text("utf-8"))
    parts |= {path: digest_file(PACKAGE / path) for path in files}
    for name, source in modules.items():
        parts[name] = source.digest
        for file in source.files:
            parts |= {path: digest_file(PACKAGE / path) for path in _files(file)}
        for imported in source.imports:
            parts |= _library(imported.partition(".")[0])
    return parts


@cache
def syntax_digest(text: str) -> str:
    """Return the digest of a module's syntax tree, without docstrings."""
    return _digest(ast.parse(text))


def _digest(tree: ast.Module) -> str:
    """Return the digest of a tree, and take its docstrings away."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return digest_bytes(ast.dump(tree).encode())[:16]


def closure(*modules: str) -> dict[str, Source]:
    """Return every module of the package that some of its modules can reach, themselves included, by name."""
    known, reached, waiting = _sources(), {}, list(modules)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached[name] = source = known[name]
        waiting += _imported(source, known)
    return dict(sorted(reached.items()))


def _imported(source: Source, known: Mapping[str, Source]) -> Iterator[str]:
    for name in source.imports:
        # `from package import name`: the module `package.name`, or a name of `package`.
        if module := next((each for each in (name, name.rpartition(".")[0]) if each in known), None):
            yield module
    for package in source.loads_below:
        yield from (name for name in known if name.startswith(f"{package}."))


@cache
def _sources() -> dict[str, Source]:
    """Return every module of the package; what was read of an unchanged file is kept from process to process."""
    kept_at = PACKAGE / "__pycache__" / "code_versions.json"
    kept: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(kept_at.read_text("utf-8"))
        kept = content if isinstance(content, dict) else {}
    rules, sources, now = _rules(), {}, {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        key = f"{place}:{digest_file(path)}:{rules}"
        try:
            source = Source(**kept[key])
        except (KeyError, TypeError):
            source = read_source(path.read_text("utf-8"), place.parent)
        now[key] = asdict(source)
        parts = (_ROOT, *place.with_suffix("").parts)
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = source
    if now != kept:
        # A package that may not be written to is read anew in each process.
        with contextlib.suppress(Exception):
            commit_bytes(UPath(kept_at), json.dumps(now).encode())
    return sources


def _rules() -> str:
    """Return what else a kept reading depends on: this module, Python's syntax trees, which data files there are."""
    data = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.suffix in _SUFFIXES[1:])
    return digest_json([digest_file(Path(__file__)), list(sys.version_info[:2]), data])[:16]


def read_source(text: str, folder: Path = Path()) -> Source:
    """Read a module's source.

    Parameters
    ----------
    folder : Path
        Of the module, relative to the package: data files may lie in it.

    Raises
    ------
    SyntaxError
        If it is not Python.
    """
    tree = ast.parse(text)
    imports: set[str] = set()
    below: set[str] = set()
    files: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == _BY_NAME:
            below |= {str(word.value.value) for word in node.keywords if isinstance(word.value, ast.Constant)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            files |= set(_named_files(node.value, folder))
    return Source(_digest(tree), sorted(imports), sorted(below), sorted(files))


def _named_files(text: str, folder: Path) -> Iterator[str]:
    """Yield what a string names of the data files of the package."""
    if not text or len(text) > 100 or "\n" in text or text.startswith((".", "/")):
        return
    for base in {folder, Path("catalog")}:
        for suffix in _SUFFIXES:
            place = base / f"{text}{suffix}"
            with contextlib.suppress(OSError, ValueError):
                if (PACKAGE / place).exists() and place.suffix != ".py" and _files(place.as_posix()):
                    yield place.as_posix()


def _files(place: str) -> list[str]:
    """Return a data file, or all data files of a folder that is no package."""
    if place in _INPUTS:
        return []
    path = PACKAGE / place
    if path.is_file():
        return [place]
    inside = sorted(each for each in path.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    if any(each.suffix == ".py" for each in inside):
        return []
    return [each.relative_to(PACKAGE).as_posix() for each in inside]


@cache
def _library(name: str) -> dict[str, str]:
    """Return the version of a numeric library by the module that is imported; nothing of other libraries."""
    distribution = _LIBRARIES.get(name)
    if distribution is None:
        return {}
    try:
        return {distribution: library_version(distribution)}
    except PackageNotFoundError:
        return {distribution: "not installed"}
