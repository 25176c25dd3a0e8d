"""The one row of a frame that has these values."""

import polars as pl


def one(frame, **key):
    """Return the only row whose columns have these values, None where they are null."""
    found = frame.filter(*[pl.col(name).eq_missing(wanted) for name, wanted in key.items()])
    assert found.height == 1, (key, found.height)
    return found.row(0, named=True)
