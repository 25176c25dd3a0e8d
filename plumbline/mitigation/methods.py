"""The mitigations: what each one is called, acts on and asks of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from plumbline.digests import digest_bytes
from plumbline.encoders.encoder import Capability

_SPACE = frozenset({Capability.EMBED_IMAGES, Capability.EMBED_TEXTS})


@dataclass(frozen=True)
class Method:
    """A mitigation method.

    Attributes
    ----------
    name : str
        As settings and assets say it.
    title : str
        For people.
    acts_on : {"logits", "texts"}
    needs : frozenset of Capability
        What must be asked of an encoder.
    trains : bool
        Whether it needs a training split.
    version : str
        Raised whenever the same inputs would be fitted or applied otherwise.
    """

    name: str
    title: str
    acts_on: Literal["logits", "texts"]
    needs: frozenset[Capability]
    trains: bool
    version: str


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("logit_adjustment", "Logit adjustment", "logits", frozenset({Capability.LOGITS}), False, "2"),
        Method("bias_prompts", "Bias Prompts", "texts", _SPACE, False, "1"),
        Method("prompt_array", "Prompt Array", "texts", _SPACE | {Capability.TEXT_GRADIENTS}, True, "1"),
        Method("saner", "SANER", "texts", _SPACE, True, "1"),
    )
}
"""Every method by name, in the order in which they are told."""

_WORDS = ("attribute_texts", "neutral_captions", "person_words", "sensitive_queries")


@cache
def words_digest() -> str:
    """Return the digest of the data files that mitigations take their own texts from."""
    folder = files("plumbline.tables")
    return digest_bytes(b"".join((folder / f"{name}.yaml").read_bytes() for name in _WORDS))
