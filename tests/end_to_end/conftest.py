"""One undisturbed audit that several tests look at."""

import pytest
from homes import make_home


@pytest.fixture(scope="session")
def audited(tmp_path_factory):
    """Return a home after one undisturbed audit, with its exit code and output."""
    home = make_home(tmp_path_factory.mktemp("audited"))
    code, output = home.run("audit")
    return home, code, output
