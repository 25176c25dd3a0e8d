"""Mitigation methods: settings, titles, what they act on, and what they need from an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from plumbline.catalog.files import data_bytes, data_yaml, typed
from plumbline.config.parts import Part
from plumbline.digests import digest_bytes
from plumbline.encoders.families import Capability
from plumbline.recording import note

Attribute = Literal["gender", "race", "age"]


class MitigationSettings(Part):
    """Settings of one mitigation; a method adds its keys, and what it says of them is what `audit.yaml` may hold."""

    method: str

    @property
    def fitted_on_datasets(self) -> tuple[tuple[str, str], ...]:
        """Return key and id of each dataset that it is fitted on in place of the one that it is judged on."""
        return ()

    @property
    def pair_datasets(self) -> tuple[tuple[str, str], ...]:
        """Return key and id of each dataset whose image-text pairs it is trained on."""
        return ()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return the ids of all these datasets."""
        return tuple(dataset for _, dataset in (*self.fitted_on_datasets, *self.pair_datasets))

    @property
    def trained_on(self) -> str:
        """Return what it is fitted on, in words; empty where nothing is."""
        return ""

    @property
    def leaking(self) -> bool:
        """Return whether the fit has seen the labels that evaluate it."""
        return False


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
    takes : str
        What it takes to use it, a sentence without its full stop.
    works : str
        How it works, for “How the numbers are made”.
    about : str
        For the person who clicks on its asset; a method that acts on logits has an asset of its own, which says it.
    """

    name: str
    title: str
    acts_on: Literal["logits", "texts"]
    needs: frozenset[Capability]
    trains: bool
    version: str
    takes: str
    works: str
    about: str = ""


METHODS = typed(
    dict[str, Method], {name: {"name": name} | about for name, about in data_yaml("mitigation_methods.yaml").items()}
)
"""Every method by name, in the order in which they are told."""


def method_title(method: str) -> str:
    """Return the title of a method; its name if it is unknown."""
    return METHODS[method].title if method in METHODS else method


_WORDS = ("attribute_texts", "neutral_captions", "person_words", "sensitive_queries")


def words_digest() -> str:
    """Return the digest of the data files with the mitigations' own texts."""
    digest = _words_digest()
    note("mitigation_texts", value=digest)
    return digest


@cache
def _words_digest() -> str:
    return digest_bytes(b"".join(data_bytes(f"{name}.yaml") for name in _WORDS))
