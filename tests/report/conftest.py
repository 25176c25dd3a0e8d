"""One small synthetic audit for the tests of the report."""

import pytest
from synthetic_audit import synthetic_inputs
from synthetic_table import GRID, synthetic_table

from plumbline.report import render

FEW = (GRID[0], GRID[6])


@pytest.fixture(scope="session")
def table():
    """Return the metric table of two models on two datasets."""
    return synthetic_table(FEW)


@pytest.fixture(scope="session")
def inputs():
    """Return the summaries that go with `table`."""
    return synthetic_inputs(FEW)


@pytest.fixture(scope="session")
def narrow(table):
    """Return of `table` what a page is made of in a third of the time: the rows of one suite."""
    return table.filter(suite="crime")


@pytest.fixture(scope="session")
def page(table, inputs, made_once):
    """Return the rendered report."""
    folder, _ = made_once("report", lambda folder: (folder / "page.html").write_bytes(render(table, inputs).encode()))
    return (folder / "page.html").read_bytes().decode()
