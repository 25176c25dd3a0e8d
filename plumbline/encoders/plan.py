"""Planning from configurations alone: family and width of each encoder, and the work of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.catalog.studies import recognise
from plumbline.catalog.suites import Suite
from plumbline.checkpoints.addresses import OPEN_CLIP_CONFIG, STORED, TRANSFORMERS_CONFIG
from plumbline.checkpoints.folders import read_configuration
from plumbline.encoders.families import FAMILIES, WITHOUT_VECTORS, Family, Logit
from plumbline.encoders.folders import checkpoint_contents
from plumbline.encoders.stored_embeddings import EmbeddingsSettings, stored_family


@dataclass(frozen=True)
class ArchitectureSummary:
    """Family of an encoder, and the width of its embeddings where that is known."""

    family: Family
    width: int | None


def architecture_summary(
    encoder: str,
    address: str,
    folder: Path,
    *,
    family: str | None = None,
    embeddings: EmbeddingsSettings | None = None,
    sizes: Path | None = None,
) -> ArchitectureSummary:
    """Summarise a checkpoint from its configuration or, where it is not on this disk, from the studies.

    A checkpoint that is neither here nor of a study is taken for one that embeds images, of unknown width.

    Parameters
    ----------
    encoder, address, family, embeddings
        Id, address, family and settings of stored embeddings of the audit file.
    folder : Path
        Where the checkpoint lies, if it does.
    sizes : Path, optional
        See `checkpoint_contents`.

    Raises
    ------
    CheckpointError
        If what lies there is no checkpoint of a known family; with everything that is wrong with it.
    """
    if address.startswith(STORED):
        return ArchitectureSummary(FAMILIES[stored_family(folder, embeddings or EmbeddingsSettings())], 0)
    if any((folder / name).is_file() for name in (OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG)):
        read_as = checkpoint_contents(folder, encoder=encoder, family=family, sizes=sizes).family
        return ArchitectureSummary(read_as, _width(folder, read_as))
    known = recognise(address)
    name = family or (known.family if known and known.family else "open_clip")
    return ArchitectureSummary(FAMILIES[name], known.width if known else None)


def _width(folder: Path, family: Family) -> int | None:
    if family.name == "open_clip":
        content: dict[str, Any] = read_configuration(folder / OPEN_CLIP_CONFIG).get("model_cfg", {})
        return _number(content.get("embed_dim"))
    content = read_configuration(folder / TRANSFORMERS_CONFIG)
    if family.name in ("owlv2", "owlvit"):
        # As the adapter keeps it: the class vector of the text's width, and the shift.
        hidden = _number((content.get("text_config") or {}).get("hidden_size"))
        return None if hidden is None else hidden + 1
    return _number(content.get("projection_dim"))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


# What the encoders of an audit have to compute: images, pairs, bytes on disk and seconds.

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
        Prompts of each suite that is asked; none where its images are embedded for another `purpose`.
    distinct_prompts : int
        Over all suites, each once: the columns of the stored logits.
    logit, stored : str, bool
        As `plumbline.encoders.families.Family` has them.
    width : int or None
        Of an embedding; None where it is not known before the checkpoint is there.
    is_there : bool
        Whether the images have gone through this encoder, in an earlier run or, with the same weights, in another cell
        of this plan.
    has_records, has_index, has_logits : bool
        Whether an earlier run has written the dataset's records, this cell's index of embeddings, and the logits of
        these prompts.
    purpose : str
        What images are embedded for where nothing is asked.
    """

    dataset: str
    encoder: str
    images: int
    prompts: tuple[int, ...]
    distinct_prompts: int
    logit: Logit
    width: int | None
    is_there: bool = False
    stored: bool = False
    has_records: bool = False
    has_index: bool = False
    has_logits: bool = False
    purpose: str = "gender labels"

    @property
    def images_to_embed(self) -> int:
        """Return how many images go through the image tower."""
        return 0 if self.is_there or self.stored or self.logit in WITHOUT_VECTORS else self.images

    @property
    def pairs_to_score(self) -> int:
        """Return how many image-prompt pairs go through a model that must see both; every suite has its own."""
        return 0 if self.is_there or self.logit != "pair" else self.images * sum(self.prompts)

    @property
    def bytes(self) -> int | None:
        """Return the bytes of shards, logits and index that are still to be written; None without the width."""
        return self.least_bytes if self.width_is_known else None

    @property
    def least_bytes(self) -> int:
        """Return the same, without the shards where the width is not known."""
        shards = self.images_to_embed * (self.width or 0) + self.pairs_to_score
        # The norms of an image beside its logits.
        logits = self.images * (self.distinct_prompts + 1) if self.prompts and not self.has_logits else 0
        return _FLOAT * (shards + logits) + (0 if self.has_index else _INDEX * self.images)

    @property
    def width_is_known(self) -> bool:
        """Return whether the width of what is to be embedded is known, if anything is."""
        return self.width is not None or not self.images_to_embed

    def seconds(self, rates: Rates) -> float:
        """Return how long the images or pairs take on one device."""
        return self.images_to_embed / rates.images_per_second + self.pairs_to_score / rates.pairs_per_second


@dataclass(frozen=True)
class ComputedCell:
    """What earlier runs have written of a cell with the weights of now.

    Attributes
    ----------
    records, index, labels, logits : bool
        Whether there are records of the dataset, and of these the index of embeddings, labels by this encoder, logits.
    texts : frozenset of str
        The prompts of the logits.
    """

    records: bool = False
    index: bool = False
    labels: bool = False
    logits: bool = False
    texts: frozenset[str] = frozenset()


def plan_cell(
    dataset: str,
    encoder: str,
    *,
    images: int,
    suites: Sequence[Suite],
    architecture: ArchitectureSummary,
    computed: ComputedCell,
    shared: bool = False,
) -> PlannedCell:
    """Plan one encoder on one dataset.

    Parameters
    ----------
    suites : sequence of Suite
        None where the encoder only labels genders.
    shared : bool
        Whether another cell of the plan embeds the same images with the same weights.
    """
    texts = {text for suite in suites for text in suite.texts}
    # To be embedded or to be labelled, the images have gone through the image tower.
    embedded = computed.index or computed.labels or shared
    logit = architecture.family.logit
    return PlannedCell(
        dataset=dataset,
        encoder=encoder,
        images=images,
        prompts=tuple(len(suite.texts) for suite in suites),
        distinct_prompts=len(texts),
        logit=logit,
        width=architecture.width,
        is_there=computed.logits if logit == "pair" else embedded,
        stored=architecture.family.stored,
        has_records=computed.records,
        # A cell that only labels genders writes the labels in place of an index.
        has_index=computed.index if suites else computed.labels,
        has_logits=computed.logits and texts <= computed.texts,
    )


@dataclass(frozen=True)
class Rates:
    """Throughput of one device; a pair is an image with one prompt of BridgeTower."""

    images_per_second: float
    pairs_per_second: float


@dataclass(frozen=True)
class EncoderPlan:
    """What is to be embedded and scored, cell by cell; training of mitigations is not in it.

    `unreadable` has the encoders whose checkpoint is there and cannot be read, with everything that is wrong with it.
    """

    cells: Sequence[PlannedCell]
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def images_to_embed(self) -> int:
        """Return how many images go through an image tower."""
        return sum(cell.images_to_embed for cell in self.cells)

    @property
    def pairs_to_score(self) -> int:
        """Return how many image-prompt pairs go through a model."""
        return sum(cell.pairs_to_score for cell in self.cells)

    @property
    def least_bytes(self) -> int:
        """Return the bytes that are still to be written, as far as known, the records of each dataset once."""
        records = {cell.dataset: cell.images * _RECORD for cell in self.cells if not cell.has_records}
        return sum(records.values()) + sum(cell.least_bytes for cell in self.cells)

    @property
    def widths_are_known(self) -> bool:
        """Return whether `least_bytes` is all that is to be written."""
        return all(cell.width_is_known for cell in self.cells)

    def seconds(self, rates: Rates) -> float:
        """Return how long everything takes on one device, one cell after the other."""
        return sum(cell.seconds(rates) for cell in self.cells)
