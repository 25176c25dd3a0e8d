"""Code of one's own, which an audit file names as `module:name`: found, versioned by its files, imported, tried.

A module is found beside the audit file, or else among what is installed; one that is in both places is refused, so that
nobody has to know which wins. Only references that an audit file of this process names are imported: not those of a
recorded audit, a bundle, a checkpoint or a data set. What they import is theirs.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from plumbline.digests import digest_json
from plumbline.errors import ConfigError, PlumblineError, examples
from plumbline.provenance.code_versions import code_parts, syntax_digest

_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_OWN_PACKAGE = "plumbline"
_FOLDERS: dict[str, Path] = {}
"""Reference -> folder of the audit file that names it."""
_LOADED: dict[str, str] = {}
"""Module -> digest of the source that was imported."""
_LOCK = RLock()


def is_reference(text: str) -> bool:
    """Return whether a text is of the form `module:name`."""
    return _REFERENCE.fullmatch(text) is not None


def _reference(value: str) -> str:
    if not is_reference(value):
        raise ValueError("a reference `module:name`, such as `my_metrics:top_two_rate`")
    return value


Reference = Annotated[str, AfterValidator(_reference)]
"""`module:name`: a function or class of a module beside the audit file, or installed."""


def admit(references: Iterable[str], folder: Path) -> None:
    """Take note of what an audit file names: nothing else is ever imported."""
    _FOLDERS.update(dict.fromkeys(references, folder.resolve()))


class OwnCode(NamedTuple):
    """What a reference leads to.

    Attributes
    ----------
    thing : object
        The function or class.
    where : str
        Its file, with the line where it is defined.
    """

    thing: Any
    where: str


def own_code(reference: str) -> OwnCode:
    """Import what a reference of the audit file names; anew where a file that it reaches was edited.

    Raises
    ------
    ConfigError
        If no audit file of this process names it, there is no such module or name, the module is in two places, or its
        import fails: with the file and line.
    """
    module, name = reference.split(":")
    with _LOCK:
        sources = _sources(reference)
        digests = {each: _syntax_digest(path) for each, path in sources.items()}
        if stale := [each for each, digest in digests.items() if _LOADED.get(each) != digest]:
            # An edited module is used by those that import it, too.
            for each in sources if any(each in _LOADED for each in stale) else stale:
                if getattr(sys.modules.get(each), "__file__", None) == str(sources[each]) or each in _LOADED:
                    sys.modules.pop(each, None)
        imported = _imported(reference, sources[module])
        _LOADED.update(digests)
    if not hasattr(imported, name):
        known = [each for each in vars(imported) if not each.startswith("_")]
        raise ConfigError(
            f"the module has no `{name}`", where=sources[module], found=examples(known) or "nothing", expected=reference
        )
    thing = getattr(imported, name)
    line = getattr(getattr(thing, "__code__", None), "co_firstlineno", None)
    where = str(sources[module]) + (f", line {line}" if line else "")
    return OwnCode(thing, where)


def code_digest(reference: str) -> str:
    """Return the version of what a reference leads to, 16 hexadecimal digits; nothing is imported.

    It counts every module beside it, or of its own package, that it reaches by import, in syntax: no comment and no
    docstring; what of Plumbline it imports; and the versions of the other distributions.

    Raises
    ------
    ConfigError
        As `own_code`.
    """
    sources = _sources(reference)
    parts: dict[str, str] = {name: _syntax_digest(path) for name, path in sources.items()}
    others = {name.split(".")[0] for path in sources.values() for name in _imports(path, "")}
    ours = {
        module
        for path in sources.values()
        for name in _imports(path, "")
        if name.split(".")[0] == _OWN_PACKAGE
        for module in [_module_of_ours(name)]
        if module
    }
    if ours:
        parts |= code_parts(*sorted(ours))
    known = _distributions()
    for top in sorted(others - {name.split(".")[0] for name in sources} - {_OWN_PACKAGE}):
        for distribution in known.get(top, ()):
            parts[distribution] = _version(distribution)
    return digest_json(parts)[:16]


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _module_of_ours(name: str) -> str | None:
    """Return the module of Plumbline that a name is, or is in."""
    folder = Path(__file__).parent
    for each in (name, name.rpartition(".")[0]):
        place = folder.joinpath(*each.split(".")[1:])
        if place.with_suffix(".py").is_file() or (place / "__init__.py").is_file():
            return each
    return None


# --- Where a module is.


def _sources(reference: str) -> dict[str, Path]:
    """Return the modules that a reference reaches beside it or in its own package, each with its file."""
    if reference not in _FOLDERS:
        raise ConfigError(
            "this code is not named by the audit file in force, so it is not run",
            found=reference,
            expected=", ".join(_FOLDERS) or "a reference that stands in the audit file",
        )
    module = reference.split(":")[0]
    base, folder = _base(module, _FOLDERS[reference]), _FOLDERS[reference]
    top = module.split(".")[0]
    reached: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file(name, base)
        beside = base == folder
        if name in reached or path is None or not (beside or name.split(".")[0] == top):
            continue
        reached[name] = path
        for parent in _parents(name):
            waiting.append(parent)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for each in _imports(path, package):
            waiting += [each, each.rpartition(".")[0]]
    if module not in reached:
        raise ConfigError("there is no source file of this module", where=base, found=module, expected=f"{module}.py")
    return reached


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def _file(name: str, base: Path) -> Path | None:
    place = base.joinpath(*name.split(".")) if name else base
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if name and path.is_file()), None)


def _base(module: str, folder: Path) -> Path:
    """Return the folder that a module is found from: that of the audit file, or where it is installed."""
    top = module.split(".")[0]
    beside = (folder / f"{top}.py").is_file() or (folder / top / "__init__.py").is_file()
    installed = _installed(top, folder)
    if beside and installed is not None:
        raise ConfigError(
            "two modules have this name: one beside the audit file, and one that is installed",
            where=folder,
            found=top,
            expected=f"another name of your own than that of {installed}",
        )
    if beside:
        return folder
    if installed is None or top in sys.stdlib_module_names:
        raise ConfigError(
            "there is no such module",
            where=folder,
            found=top,
            expected=f"{top}.py beside the audit file, or an installed package `{top}`",
        )
    return installed.parent.parent if installed.name == "__init__.py" else installed.parent


def _installed(top: str, folder: Path) -> Path | None:
    if top in sys.stdlib_module_names:
        return Path(f"{top}.py")
    paths = [path for path in sys.path if Path(path or ".").resolve() != folder]
    spec = importlib.machinery.PathFinder.find_spec(top, paths)
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _imports(path: Path, package: str) -> list[str]:
    """Return the modules, or names within modules, that a file imports, relative ones in full."""
    names: list[str] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        where = f"{path}, line {getattr(error, 'lineno', 1)}"
        raise ConfigError("this is not Python", where=where, found=getattr(error, "msg", str(error))) from error


def _syntax_digest(path: Path) -> str:
    _tree(path)
    return syntax_digest(path.read_text("utf-8"))


def _imported(reference: str, path: Path) -> ModuleType:
    module, folder = reference.split(":")[0], str(_FOLDERS[reference])
    if folder not in sys.path and path.is_relative_to(folder):
        # At the end: a module beside the audit file takes the place of none that is installed.
        sys.path.append(folder)
    importlib.invalidate_caches()
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        # Bytecode is taken for that of the source by time and size: of two edits within a second it may be the first's.
        with suppress(OSError):
            Path(cache_from_source(str(path))).unlink()
        if find_spec(module) is None:
            raise ModuleNotFoundError(module)
        return importlib.import_module(module)
    except Exception as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = f", line {frames[-1].lineno}" if frames else ""
        shown = f"{type(error).__name__}: {error}"
        raise ConfigError("the import of this module fails", where=f"{path}{line}", found=shown[:300]) from error
    finally:
        sys.dont_write_bytecode = kept


# --- What the checks of a contract share.


def broken(code: OwnCode, what: str, *, found: object = None, expected: object = None) -> ConfigError:
    """Return the error of code that does not keep its contract, with its file and line."""
    return ConfigError(f"your own code does not fit: {what}", where=code.where, found=found, expected=expected)


def called(code: OwnCode, function: Any, *arguments: Any, told: str) -> Any:
    """Return what own code gives; what it raises is told with its own line.

    Parameters
    ----------
    told : str
        What it was called with, for the message.
    """
    try:
        return function(*arguments)
    except PlumblineError:
        raise  # it says already what is wrong, and where
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{frame.filename}, line {frame.lineno}" for frame in frames if frame.filename != __file__]
        raise ConfigError(
            f"your own code fails: {told}",
            where=lines[-1] if lines else code.where,
            found=f"{type(error).__name__}: {error}"[:300],
        ) from error
