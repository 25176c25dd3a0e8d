"""The prompts of a suite, those that a number is about before the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.tables.suites import Candidate, Suite


def prompts_asked(suite: Suite, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rendered prompts of a suite: first those of the row's probe and event, in the order of the suite.

    Parameters
    ----------
    row : mapping
        A metric row; of its columns `event` and `probe` are read, where it has them.
    """
    event, probe = row.get("event"), row.get("probe")

    def distance(candidate: Candidate) -> int:
        of_event = event is None or _is_of_event(suite, candidate, event)
        named = probe is None or probe in (candidate.id, candidate.word, candidate.category.split(":")[0])
        return 0 if of_event and named else 1 if of_event and event else 2

    # Sorting keeps the order of the suite among equals.
    return tuple(candidate.text for candidate in sorted(suite.candidates, key=distance))


def _is_of_event(suite: Suite, candidate: Candidate, event: str) -> bool:
    if event in suite.scales:
        return candidate.word in suite.scales[event]
    if suite.events:
        # The mean over tasks is over the event of each.
        events = (event,) if event in suite.events else suite.skewed_events
        return any(candidate.category in suite.events[name] for name in events)
    if suite.family == "captions":
        # `negative_race_caption` is of the categories `scene:race:neg`.
        _, attribute, side = candidate.category.split(":")
        return side == "neg" and event == f"negative_{attribute}_caption"
    return candidate.category == event or candidate.category.startswith(f"{event}:")
