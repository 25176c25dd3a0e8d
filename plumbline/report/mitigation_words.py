"""The mitigation methods in words: what each is called, what it takes to use it, how it works."""

from __future__ import annotations

from typing import NamedTuple


class MethodWords(NamedTuple):
    """One method of `plumbline.mitigation.methods.METHODS`, which imports what a report must do without.

    Attributes
    ----------
    title : str
        As there.
    takes : str
        What it takes to use it, a sentence without its full stop.
    works : str
        How it works, for “How the numbers are made”.
    """

    title: str
    takes: str
    works: str


METHOD_WORDS = {
    "logit_adjustment": MethodWords(
        "Logit adjustment",
        "It acts on the logits: it needs the list of candidate labels and some labelled images of each",
        "One factor per candidate, fitted on a few images a class, chosen on these only, judged on all others; mean "
        "and standard deviation over trials. Where the fit lets test accuracy into the choice, as the released code "
        "does, it is shown for comparison only.",
    ),
    "bias_prompts": MethodWords(
        "Bias Prompts",
        "It acts on the features of texts: it needs neither labels nor training",
        "Text features are projected off the directions of prompts that name a group, calibrated so that pairs of "
        "prompts that differ in the group alone coincide (Chuang et al. 2023); nothing is trained on images.",
    ),
    "prompt_array": MethodWords(
        "Prompt Array",
        "It acts on texts, so that using it needs no labels; its training needs faces labelled by group and "
        "gradients through the text encoder",
        "Tokens before the words of every text are learned against an adversary that guesses the group from the "
        "similarities of image and texts (Berg et al. 2022), on the training split.",
    ),
    "saner": MethodWords(
        "SANER",
        "It acts on the features of texts that name no group, so that using it needs no labels; its training needs "
        "images with captions",
        "A small layer on the features of texts that name no group is trained until each is as near to its variants "
        "for one group as for another (Hirota et al. 2025), on the training split; texts that name a group pass "
        "unchanged.",
    ),
}
"""Method -> its words, in the order in which methods are told."""


def method_title(method: str) -> str:
    """Return a method in words; an unknown one by its name."""
    return METHOD_WORDS[method].title if method in METHOD_WORDS else method
