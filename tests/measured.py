"""What `make test` measures the coverage of: the library, in the tests of the library."""

import pytest

_APART = {
    "assets", "contributing", "documentation", "end_to_end", "orchestration", "resources", "scale", "studies",
}  # fmt: skip
"""Folders whose tests are of the application: what they run of the library is tested beside it.

Tracing sees every call, also those of Dagster, which are most of the calls of a whole audit (docs/decisions, 35).
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Measure nothing in tests of the application, from their fixtures on."""
    measuring = item.config.pluginmanager.getplugin("_cov")
    if measuring is None or measuring.cov_controller is None or _APART.isdisjoint(item.path.parts):
        return (yield)
    measuring.cov_controller.pause()
    try:
        return (yield)
    finally:
        measuring.cov_controller.resume()
