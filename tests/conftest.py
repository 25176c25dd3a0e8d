"""What holds for all tests."""

import gc

from hypothesis import settings

# `make test` draws the same examples every time, so that what fails there is what was changed; `make test-all` draws
# new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", max_examples=500)
settings.load_profile("same")


def pytest_collection_finish():
    """Let the garbage collector run seldom, and leave alone what imports made.

    Python collects often by how many objects there are, and the modules of this project's libraries are a million of
    them: a fifth of the time of the report's tests went into walking through them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
