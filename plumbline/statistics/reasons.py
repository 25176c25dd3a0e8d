"""A transition: reasons as one text, for callers that do not tell codes yet (`plumbline.reasons` has them)."""

from __future__ import annotations

from plumbline import reasons


def joined(*several: reasons.Reason | reasons.Reasons | str | None) -> str | None:
    """Return the reasons that apply in words."""
    return reasons.in_words(reasons.joined(*several))
