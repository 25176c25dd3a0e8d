"""Fail where modules import each other in a circle; imports inside functions, and those for types alone, count too."""

import sys
import tomllib
from graphlib import CycleError, TopologicalSorter

import grimp

from resources.checkout import PROJECT

SETTINGS = PROJECT / "pyproject.toml"


def circle(*packages: str) -> list[str] | None:
    """Return the modules of a circle, the first once more at its end, or None where there is none."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return None


def main() -> None:
    """Look at the packages that import-linter looks at."""
    settings = tomllib.loads(SETTINGS.read_text("utf-8"))
    if found := circle(*settings["tool"]["importlinter"]["root_packages"]):
        sys.exit("modules import each other in a circle: " + " → ".join(found))
    print("No module imports itself by way of others.")


if __name__ == "__main__":
    main()
