"""A circle of imports is found, also where a function imports; a package without one passes."""

import pytest

from documentation.import_circles import circle

IMPORT = "def later():\n    from circling{n}.b import other\n"


@pytest.mark.parametrize(("n", "back", "found"), [(1, "import circling1.a", {"a", "b"}), (2, "", None)])
def test_an_import_inside_a_function_closes_a_circle(tmp_path, monkeypatch, n, back, found):
    package = tmp_path / f"circling{n}"
    package.mkdir()
    for name, text in {"__init__": "", "a": IMPORT.format(n=n), "b": back, "c": "from . import a"}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    modules = circle(package.name)
    assert (modules and {module.rpartition(".")[2] for module in modules}) == found
    assert modules is None or modules[0] == modules[-1]
