"""What every mitigation is: its settings, what it is called, acts on and asks of an encoder, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from plumbline.catalog.files import data_bytes
from plumbline.config.parts import Part
from plumbline.digests import digest_bytes
from plumbline.encoders.families import Capability

Attribute = Literal["gender", "race", "age"]


class MitigationSettings(Part):
    """Settings of one mitigation; a method adds its keys, and what it says of them is what `audit.yaml` may hold."""

    method: str

    @property
    def leaking(self) -> bool:
        """Return whether what is fitted so has seen the labels that it is judged by."""
        return False


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


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "logit_adjustment", "Logit adjustment", "logits", frozenset({Capability.LOGITS}), False, "2",
            takes="It acts on the logits: it needs the list of candidate labels and some labelled images of each",
            works="One factor per candidate, fitted on a few images a class, chosen on these only, judged on all "
            "others; mean and standard deviation over trials. Where the fit lets test accuracy into the choice, as the "
            "released code does, it is shown for comparison only.",
        ),
        Method(
            "bias_prompts", "Bias Prompts", "texts", _SPACE, False, "1",
            takes="It acts on the features of texts: it needs neither labels nor training",
            works="Text features are projected off the directions of prompts that name a group, calibrated so that "
            "pairs of prompts that differ in the group alone coincide (Chuang et al. 2023); nothing is trained on "
            "images.",
            about="Bias Prompts: a projection that takes the directions of gender, race and age out of every "
            "prompt.\n\n"
            "Computed from the embeddings of attribute prompts alone, calibrated so that pairs such as "
            "`male doctor` and `female doctor` coincide. No image, no label, no training.",
        ),
        Method(
            "prompt_array", "Prompt Array", "texts", _SPACE | {Capability.TEXT_GRADIENTS}, True, "1",
            takes="It acts on texts, so that using it needs no labels; its training needs faces labelled by group and "
            "gradients through the text encoder",
            works="Tokens before the words of every text are learned against an adversary that guesses the group from "
            "the similarities of image and texts (Berg et al. 2022), on the training split.",
            about="Prompt Array: a few learned tokens before every prompt, trained against an adversary.\n\n"
            "The adversary guesses the protected attribute from image-text similarities; the tokens are "
            "trained so that it cannot. Fitted on the dataset's training split, which no mitigated number "
            "is computed on; epochs are kept, so that an interrupted training goes on. Needs an encoder "
            "whose texts can be differentiated.",
        ),
        Method(
            "saner", "SANER", "texts", _SPACE, True, "1",
            takes="It acts on the features of texts that name no group, so that using it needs no labels; its training "
            "needs images with captions",
            works="A small layer on the features of texts that name no group is trained until each is as near to its "
            "variants for one group as for another (Hirota et al. 2025), on the training split; texts that name a "
            "group pass unchanged.",
            about="SANER: a residual layer that makes neutral prompts equidistant to their attribute-specific "
            "variants.\n\n"
            "Fitted on the captions of the dataset's training split; prompts that name the attribute pass "
            "unchanged. Epochs are kept, so that an interrupted training goes on.",
        ),
    )
}  # fmt: skip
"""Every method by name, in the order in which they are told."""


def method_title(method: str) -> str:
    """Return a method in words; an unknown one by its name."""
    return METHODS[method].title if method in METHODS else method


_WORDS = ("attribute_texts", "neutral_captions", "person_words", "sensitive_queries")


@cache
def words_digest() -> str:
    """Return the digest of the data files that mitigations take their own texts from."""
    return digest_bytes(b"".join(data_bytes(f"{name}.yaml") for name in _WORDS))
