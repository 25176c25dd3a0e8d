"""Batches of texts of about one length, so that little of a forward pass is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 1024


def length_batches(
    lengths: Sequence[int], *, most_tokens: int, most_rows: int = MOST_ROWS
) -> Iterator[NDArray[np.int64]]:
    """Yield positions of texts that go through the model together, each once, the longest texts first.

    Padded to its longest text a batch has at most `most_tokens` tokens, or is a single text. The longest come first so
    that a device whose memory is short says so at once.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each text.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        rows = min(max(1, most_tokens // longest), most_rows)
        yield order[start : start + rows]
        start += rows
