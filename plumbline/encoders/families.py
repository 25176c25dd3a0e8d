"""The families of encoders: what each one offers, how its checkpoints are found and loaded, and what suites need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from plumbline.catalog.suites import Suite
from plumbline.checkpoints import folders as checkpoints
from plumbline.errors import CheckpointError, ConfigError


class Capability(StrEnum):
    """Capabilities of encoders; suites, labels and mitigations state which of them they need."""

    EMBED_IMAGES = "embed_images"
    """Images as vectors in a space shared with the texts, where a cosine means something."""

    EMBED_TEXTS = "embed_texts"
    """Texts as vectors in that space."""

    LOGITS = "logits"
    """One number an image and text, higher for a better match; enough for a choice among candidates."""

    CHOICES = "choices"
    """The best match of an image among the candidates of a suite; enough for how often what is chosen."""

    NEW_TEXTS = "new_texts"
    """Any text as a vector, not only those whose vectors are stored."""

    TEXT_GRADIENTS = "text_gradients"
    """Text embeddings that can be differentiated by the input embeddings, for learned prompts."""


# What each family offers, and how the studies take its logits.

Logit = Literal["dot", "scaled_cosine", "pair", "stored"]

WITHOUT_VECTORS: tuple[Logit, ...] = ("pair", "stored")
"""What has no embeddings to keep: models that must see image and text together, and predictions made elsewhere."""

_EVERYTHING = frozenset(Capability)
_VECTORS = _EVERYTHING - {Capability.TEXT_GRADIENTS}
_LOGITS = frozenset({Capability.LOGITS, Capability.CHOICES})


@dataclass(frozen=True)
class Family(checkpoints.Family):
    """A family of encoders; an adapter is a `module:Class` below `plumbline.encoders`.

    Attributes
    ----------
    offers : frozenset of Capability
        What suites, labels and mitigations may ask of it.
    logit : str
        How the released Trident code takes the logit of an image and a text: `dot`, the product of the vectors as
        they are; `scaled_cosine`, cosine times the checkpoint's own scale; `pair`, the model's answer to the pair. Of
        architectures that it does not know, the model's own logit. `stored`: none, what was chosen is read from tables.
    wording : str
        Wording of the Trident prompts that the released code gives it: `align` or `released`.
    also_reads : tuple of str
        Values of `model_type` that it loads too, but only where the audit file names the family.
    stored : bool
        Whether images were seen elsewhere: predictions or embeddings are read from files.
    """

    offers: frozenset[Capability]
    logit: Logit
    wording: str = "released"
    also_reads: tuple[str, ...] = ()
    stored: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """Return every `model_type` that the adapter loads."""
        return self.model_types + self.also_reads


DUAL_ENCODER = "dual_encoder"
"""The family of types that are not in the table and have both methods of a dual encoder; it must be asked for."""

REFUSED = {
    "clipseg": "it segments: its towers are those of a CLIP, which can be audited itself",
    "videoprism": "it reads videos",
    "xclip": "it reads videos",
    "clap": "it reads sounds",
}
"""`model_type` of dual encoders that no family reads, and why."""

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("open_clip", "CLIP (open_clip)", (), "open_clip:OpenClipEncoder", 1, _EVERYTHING, "dot"),
        Family("clip", "CLIP (transformers)", ("clip",), "dual_encoder:PromptedTowers", 1, _EVERYTHING, "dot"),
        Family(
            "align", "ALIGN", ("align",), "dual_encoder:AlignTowers", 1, _EVERYTHING, "scaled_cosine", "align"
        ),
        Family(
            "altclip", "AltCLIP", ("altclip",), "dual_encoder:AltClipTowers", 1, _EVERYTHING, "scaled_cosine"
        ),
        Family(
            "chinese_clip", "Chinese-CLIP", ("chinese_clip",), "dual_encoder:ChineseClipTowers", 1,
            _EVERYTHING, "scaled_cosine",
        ),
        Family(
            "metaclip_2", "MetaCLIP 2", ("metaclip_2",), "dual_encoder:PromptedTowers", 1,
            _EVERYTHING, "scaled_cosine",
        ),
        Family("siglip", "SigLIP", ("siglip",), "dual_encoder:SiglipTowers", 1, _VECTORS, "scaled_cosine"),
        Family("siglip2", "SigLIP 2 NaFlex", ("siglip2",), "dual_encoder:NaflexTowers", 1, _VECTORS, "scaled_cosine"),
        Family("tipsv2", "TIPS v2", ("tipsv2",), "dual_encoder:Tipsv2Towers", 1, _VECTORS, "scaled_cosine"),
        Family("flava", "FLAVA", ("flava",), "dual_encoder:FlavaTowers", 1, _EVERYTHING, "scaled_cosine"),
        Family(
            DUAL_ENCODER, "dual encoder of an untested type", (), "dual_encoder:DualTowers", 1,
            _VECTORS, "scaled_cosine",
        ),
        Family("blip", "BLIP", ("blip",), "cross_encoders:BlipEncoder", 1, _LOGITS, "pair"),
        Family("blip_2", "BLIP-2", ("blip-2",), "cross_encoders:Blip2Encoder", 1, _LOGITS, "pair"),
        Family("bridgetower", "BridgeTower", ("bridgetower",), "cross_encoders:BridgeTowerEncoder", 1, _LOGITS, "pair"),
        Family("owlv2", "OWLv2", ("owlv2",), "owlv2:Owlv2Encoder", 1, _LOGITS, "dot"),
        # The released Trident code puts OWLv2 weights into the OWL-ViT classes: `family: owlvit` asks for that.
        Family("owlvit", "OWL-ViT", ("owlvit",), "owlv2:OwlVitEncoder", 1, _LOGITS, "dot", also_reads=("owlv2",)),
        Family(
            "stored", "stored predictions", (), "stored_predictions:StoredPredictions", 1,
            frozenset({Capability.CHOICES}), "stored", stored=True,
        ),
        Family(
            "stored_images", "stored image embeddings", (), "stored_embeddings:StoredEmbeddings", 1,
            _VECTORS, "scaled_cosine", stored=True,
        ),
        Family(
            "stored_vectors", "stored embeddings of images and texts", (), "stored_embeddings:StoredEmbeddings", 1,
            _VECTORS - {Capability.NEW_TEXTS}, "scaled_cosine", stored=True,
        ),
    )
}  # fmt: skip


def find_family(name: str) -> Family:
    """Return a family by its name; raises CheckpointError with the known ones."""
    if name not in FAMILIES:
        raise CheckpointError("there is no such family of encoders", found=name, expected=", ".join(FAMILIES))
    return FAMILIES[name]


def require(family: Family | str, needs: Iterable[Capability], purpose: str) -> None:
    """Raise an error if an encoder lacks a required capability.

    Parameters
    ----------
    family : Family or its name
    needs : capabilities
    purpose : str
        What needs them, for the message: `Prompt Array`, `suite scm`.

    Raises
    ------
    ConfigError
        If the family does not offer all of `needs`; says which families do.
    """
    if not isinstance(family, Family):
        family = find_family(family)
    needs = frozenset(needs)
    missing = sorted(needs - family.offers)
    if missing:
        able = [other.title for other in FAMILIES.values() if needs <= other.offers]
        raise ConfigError(
            f"{purpose} needs {', '.join(missing)}, which the family {family.title} does not offer",
            found=f"{family.name} offers {', '.join(sorted(family.offers))}",
            expected=f"an encoder of {', '.join(able)}" if able else "no family offers all of this",
        )


# Which suites an encoder can answer: what each family of suites needs, against what its own family offers.

NEEDS: dict[str, frozenset[Capability]] = {
    # Each probe is tested beside the classes alone: a top-1 among all of them does not say which class comes next.
    "trident": frozenset({Capability.LOGITS}),
    "outcomes": frozenset({Capability.CHOICES}),
    # These compare cosines with each other, not only their order within an image.
    "perception": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    "markedness": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    "templates": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    "captions": frozenset({Capability.LOGITS}),
    # The mean of a class's texts is a text of no words: a vector.
    "utility": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
    # A probability with a margin is a softmax over scaled cosines.
    "labels": frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS}),
}
"""Family of suites -> what must be asked of an encoder."""


def answers(family: Family, suite: Suite) -> bool:
    """Return whether encoders of a family can answer a suite."""
    return NEEDS[suite.family] <= family.offers


def require_suites(family: Family | str, suites: Iterable[Suite]) -> None:
    """Refuse suites that an encoder's family cannot answer.

    Raises
    ------
    ConfigError
        With the suite, what it needs, and which families offer that.
    """
    for suite in suites:
        purpose = "the automatic gender label" if suite.family == "labels" else f"the suite `{suite.id}`"
        require(family, NEEDS[suite.family], purpose)
