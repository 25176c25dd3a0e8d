"""What the encoders of an audit have to compute: images, pairs, bytes on disk and seconds, by arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plumbline.encoders.families import Logit

_FLOAT = 4
# Measured on the planted audit, per image: of records and labels once a dataset, of the index of embeddings a cell.
_RECORD, _INDEX = 110, 38


@dataclass(frozen=True)
class PlannedCell:
    """One encoder on one dataset.

    Attributes
    ----------
    images : int
    prompts : tuple of int
        Prompts of each suite that is asked; none where the encoder only labels genders.
    distinct_prompts : int
        Over all suites, each once: the columns of the stored logits.
    logit : str
        As `plumbline.encoders.families.Family` has it.
    width : int or None
        Of an embedding; None where it is not known before the checkpoint is there.
    is_there : bool
        Whether the images have gone through this encoder, in an earlier run or, with the same weights, in another cell
        of this plan.
    """

    dataset: str
    encoder: str
    images: int
    prompts: tuple[int, ...]
    distinct_prompts: int
    logit: Logit
    width: int | None
    is_there: bool = False

    @property
    def images_to_embed(self) -> int:
        """Return how many images go through the image tower."""
        return 0 if self.is_there or self.logit == "pair" else self.images

    @property
    def pairs_to_score(self) -> int:
        """Return how many image-prompt pairs go through a model that must see both; every suite has its own."""
        return 0 if self.is_there or self.logit != "pair" else self.images * sum(self.prompts)

    @property
    def bytes(self) -> int | None:
        """Return the bytes of logits and index, and of shards that are yet to be written; None without the width."""
        if self.images_to_embed and self.width is None:
            return None
        shards = self.images_to_embed * (self.width or 0) + self.pairs_to_score
        # The norms of an image beside its logits.
        logits = self.images * (self.distinct_prompts + 1) if self.prompts else 0
        return _FLOAT * (shards + logits) + _INDEX * self.images

    def seconds(self, rates: Rates) -> float:
        """Return how long the images or pairs take on one device."""
        return self.images_to_embed / rates.images_per_second + self.pairs_to_score / rates.pairs_per_second


@dataclass(frozen=True)
class Rates:
    """How fast one device is; pairs are those of BridgeTower, an image with one prompt."""

    images_per_second: float
    pairs_per_second: float


@dataclass(frozen=True)
class EncoderPlan:
    """What is to be embedded and scored, cell by cell; training of mitigations is not in it."""

    cells: Sequence[PlannedCell]

    @property
    def images_to_embed(self) -> int:
        """Return how many images go through an image tower."""
        return sum(cell.images_to_embed for cell in self.cells)

    @property
    def pairs_to_score(self) -> int:
        """Return how many image-prompt pairs go through a model."""
        return sum(cell.pairs_to_score for cell in self.cells)

    @property
    def bytes(self) -> int:
        """Return the bytes that are known to be written, the records of each dataset once."""
        records = {cell.dataset: cell.images * _RECORD for cell in self.cells}
        return sum(records.values()) + sum(cell.bytes or 0 for cell in self.cells)

    def seconds(self, rates: Rates) -> float:
        """Return how long everything takes on one device, one cell after the other."""
        return sum(cell.seconds(rates) for cell in self.cells)
