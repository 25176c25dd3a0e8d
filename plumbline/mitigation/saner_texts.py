"""The texts that SANER is trained on: neutral captions with their variants, never a prompt of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_sequence
from plumbline.mitigation.neutral_texts import is_neutral, neutralised, variants
from plumbline.tables.neutral_captions import neutral_captions
from plumbline.tables.suites import all_texts

ONE_CAPTION = "a photo of a person"


@dataclass(frozen=True)
class SanerTexts:
    """Neutral texts to train on.

    Attributes
    ----------
    neutral : tuple of str
        Length t, distinct: first those of the rows, then those without an image.
    variants : tuple of tuple of str
        Of each neutral text, g variants.
    of_row : (n,) int64
        Position in `neutral` of each training row's caption; -1 where it has none.
    without_image : (k,) int64
        Positions of the texts that belong to no row.
    """

    neutral: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    of_row: NDArray[np.int64]
    without_image: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the positions of the rows that have a caption to train on."""
        return np.flatnonzero(self.of_row >= 0)

    @property
    def distinct(self) -> tuple[str, ...]:
        """Return every text that must be embedded, once."""
        return tuple(dict.fromkeys((*self.neutral, *(text for row in self.variants for text in row))))

    @property
    def digest(self) -> str:
        """Return the sha256 of all of it."""
        return digest_sequence(
            [*self.neutral, *(text for row in self.variants for text in row), *map(str, self.of_row.tolist())]
        )


def saner_texts(captions: Sequence[str], attribute: str, *, more: bool) -> SanerTexts:
    """Neutralise captions and make the variants of each.

    A caption that is then a prompt of an audited suite, or has such a variant, is taken in another wording
    (`a picture of ..`), and if that is one too, left out; an empty one likewise.

    Parameters
    ----------
    captions : sequence of n str
        Of the training rows.
    more : bool
        Whether the neutral captions of the data file are trained on too.
    """
    made = {
        caption: unaudited(neutralised(caption, attribute), attribute) for caption in dict.fromkeys(captions)
    }
    of_rows = tuple(dict.fromkeys(text for text in made.values() if text))
    others = neutral_captions().texts if more else ()
    neutral = tuple(dict.fromkeys((*of_rows, *others)))
    position = {text: i for i, text in enumerate(neutral)}
    return SanerTexts(
        neutral=neutral,
        variants=tuple(variants(text, attribute) for text in neutral),
        of_row=np.array([position.get(made[caption] or "", -1) for caption in captions], dtype=np.int64),
        without_image=np.arange(len(of_rows), len(neutral)),
    )


def one_caption(rows: int) -> SanerTexts:
    """Return the texts of the variant `released`: one caption for every row, with its seven race variants.

    The caption is a prompt of the Trident suites: the variant is for comparison with published numbers only.
    """
    return SanerTexts(
        neutral=(ONE_CAPTION,),
        variants=(variants(ONE_CAPTION, "race"),),
        of_row=np.zeros(rows, dtype=np.int64),
        without_image=np.arange(0),
    )


def unaudited(text: str, attribute: str) -> str | None:
    """Return a neutral text or another wording of it, whichever is no audited prompt, variants included."""
    wordings = [text]
    for beginning, other in neutral_captions().rewordings.items():
        if text.lower().startswith(beginning):
            wordings.append(other + text[len(beginning) :])
            break
    return next(
        (wording for wording in wordings if wording.strip() and _is_unaudited(wording, attribute)), None
    )


def _is_unaudited(text: str, attribute: str) -> bool:
    return is_neutral(text, attribute) and not _audited().intersection(
        as_read(wording) for wording in (text, *variants(text, attribute))
    )


def as_read(text: str) -> str:
    """Return a text as an encoder without capitals reads it, without its full stop."""
    return " ".join(text.lower().split()).rstrip(".")


@cache
def _audited() -> frozenset[str]:
    return frozenset(map(as_read, all_texts()))
