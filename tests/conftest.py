"""What holds for all tests."""

import gc


def pytest_collection_finish():
    """Let the garbage collector run seldom, and leave alone what imports made.

    Python collects often by how many objects there are, and the modules of this project's libraries are a million of
    them: a fifth of the time of the report's tests went into walking through them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
