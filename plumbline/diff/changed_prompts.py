"""Which prompts of a suite are others than before: its numbers are answers to another question then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SHOWN = 3


@dataclass(frozen=True)
class StoredPrompts:
    """The prompts that one side of a comparison answered.

    Attributes
    ----------
    suite : sequence of str or None
        Those of the suite; None where it was stored without saying which are whose.
    every : sequence of str
        Those of all suites together.
    """

    suite: Sequence[str] | None
    every: Sequence[str]


@dataclass(frozen=True)
class ChangedPrompts:
    """A suite whose prompts, or what they count as, changed.

    Attributes
    ----------
    added, removed : tuple of str
        Texts that only the new, only the old side has; as far as it can be told.
    certain : bool
        Whether the texts of both sides are known, so that no text in either says that none changed.
    """

    suite: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    certain: bool = False

    @property
    def told(self) -> str:
        """Say what changed: `the prompts of `crime` changed: +1 (a photo of a burglar)`."""
        said = [
            f"{sign}{len(texts)} ({_listed(texts)})"
            for sign, texts in (("+", self.added), ("−", self.removed))
            if texts
        ]
        if not said and self.certain:
            said = ["the same texts, in another order or counted as something else"]
        return f"the prompts of `{self.suite}` changed" + (f": {', '.join(said)}" if said else "")


def changed_prompts(suite: str, old: StoredPrompts, new: StoredPrompts, *, alone: bool) -> ChangedPrompts:
    """Compare the prompts of one suite that is another one on the new side.

    Parameters
    ----------
    alone : bool
        Whether no other suite changed: then a text that one side has and the other has not is this suite's.
    """
    return ChangedPrompts(
        suite,
        added=_only(new, old, alone=alone),
        removed=_only(old, new, alone=alone),
        certain=old.suite is not None and new.suite is not None,
    )


def _only(here: StoredPrompts, there: StoredPrompts, *, alone: bool) -> tuple[str, ...]:
    if here.suite is None:
        own, known = (here.every if alone else ()), {*there.every}
    else:
        own, known = here.suite, {*(there.every if there.suite is None else there.suite)}
    return tuple(text for text in own if text not in known)


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
