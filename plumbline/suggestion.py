"""What somebody may have meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def suggestion(found: object, known: Sequence[str]) -> str:
    """Return `; did you mean ...?` if a known name is close, else nothing."""
    close = difflib.get_close_matches(str(found), known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""
