"""Scores that were made elsewhere, looked up by text: as by the Perspective API while it lasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from plumbline.digests import digest_json
from plumbline.scorers.scorer import Scored
from plumbline.scorers.stored_table import StoredTable, key_halves
from plumbline.scorers.text_scores import text_keys

_CODE = 1
"""Raised whenever the same file would give a text another score."""

NOT_STORED = "the file of stored scores lacks this text"
NO_VALUE = "the file of stored scores has no value here"


class StoredScorer:
    """Looks texts up in a file of scores: `plumbline.scorers.scorer.Scorer`.

    A text that the file lacks has nan and a reason, as have single attributes without a value; how many texts it
    covers is for `plumbline.scorers.text_scores.score_coverage` to say. Texts match by every character.

    Parameters
    ----------
    table : StoredTable
        As `plumbline.scorers.stored_table.read_stored` makes it; that says what files are accepted.
    """

    offline_stand_in: bool = False

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self.attributes: tuple[str, ...] = table.attributes
        self.version = f"{table.name} {table.digest[:12]}"
        self.identity = digest_json(
            {"kind": "stored", "code": _CODE, "file": table.digest, "columns": table.columns}
        )

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`."""
        table = self._table
        first, second = key_halves(text_keys(texts))
        at = np.minimum(np.searchsorted(table.first, first), max(len(table.first) - 1, 0))
        for i, row in enumerate(at.tolist()):
            if len(table.first) and table.first[row] == first[i] and table.second[row] == second[i]:
                scores = dict(zip(self.attributes, table.scores[row].tolist()))
                whole = not np.isnan(table.scores[row]).any()
                yield i, Scored(scores, bool(table.truncated[row]), None if whole else NO_VALUE)
            else:
                yield i, Scored(dict.fromkeys(self.attributes, float("nan")), reason=NOT_STORED)
