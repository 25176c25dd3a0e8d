"""Every example in what the package promises is run."""

import doctest
import inspect

import numpy as np
import pytest

import plumbline

FINDER = doctest.DocTestFinder(recurse=False)
FUNCTIONS = [name for name in plumbline.__all__ if inspect.isfunction(getattr(plumbline, name))]


@pytest.mark.parametrize("name", [*FUNCTIONS, "plumbline"])
def test_an_example_is_there_and_gives_what_it_shows(name):
    [test] = FINDER.find(plumbline if name == "plumbline" else getattr(plumbline, name), name, globs={})
    assert test.examples, "no example"
    with np.printoptions(legacy="1.25"):
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.failed == 0


def test_what_is_no_function_says_what_it_holds():
    for name in set(plumbline.__all__) - {*FUNCTIONS, "__version__"}:
        value = getattr(plumbline, name)
        assert issubclass(value, Exception) or "Attributes" in value.__doc__, name
