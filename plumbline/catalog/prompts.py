"""Prompts of generative models: questions, instructions, image descriptions for text-only models, and the judge's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from plumbline.catalog.files import data_yaml, entry
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.catalog.suites import with_article
from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.recording import note

Kind = Literal["main", "additional", "numeric", "all"]
Articles = Literal["repaired", "as_printed"]

SPOKEN = {"man": "male", "woman": "female"}
"""Label of the records -> its word in the study's prompts."""

_FILE = "generation_prompts.yaml"


@dataclass(frozen=True)
class JudgePrompts:
    """Prompts of the stereotype judge (appendix D.2).

    Attributes
    ----------
    system : str
    user : str
        With the slot `{group}`; the list of words follows it. `about` fills the slot.
    """

    system: str
    user: str

    def about(self, group: str) -> str:
        """Return the user's prompt about one group, in words such as `Black female`."""
        return self.user.replace("{group}", group)

    @property
    def hash(self) -> str:
        """Return the sha256 of both prompts."""
        return digest_json([self.system, self.user])


@cache
def _content() -> Mapping[str, Any]:
    content: dict[str, Any] = data_yaml(_FILE)
    return content


@cache
def _prompts() -> Mapping[str, str]:
    return {name: text for kind in _content()["prompts"].values() for name, text in kind.items()}


def prompt_ids(kind: Kind = "all") -> tuple[str, ...]:
    """Return the ids of the prompts, in the order of the paper.

    Parameters
    ----------
    kind : {"main", "additional", "numeric", "all"}
        Table 6, 7, 15, or all three.

    Raises
    ------
    ConfigError
        If there is no such kind.
    """
    kinds = {**_content()["prompts"], "all": _prompts()}
    return tuple(entry(kinds, kind, "there is no such kind of prompts", _FILE))


def instruction_ids() -> tuple[str, ...]:
    """Return `none` and the ids of the instructions, in the order of the paper."""
    return (NO_INSTRUCTION, *_content()["instructions"])


def needs_occupation(prompt: str) -> bool:
    """Return whether a prompt has a slot for the occupation.

    Raises
    ------
    ConfigError
        If there is no such prompt.
    """
    return "{occupation}" in _template(prompt)


def typical_tokens(prompt: str) -> int:
    """Return how many new tokens a usual answer has: a guess, for the plan of a run.

    Raises
    ------
    ConfigError
        If there is no such prompt.
    """
    _template(prompt)
    return int(_content()["typical_tokens"][prompt])


def render(
    prompt: str,
    *,
    instruction: str = NO_INSTRUCTION,
    occupation: str | None = None,
    described: str | None = None,
    articles: Articles = "repaired",
) -> str:
    """Return the text that is asked, without any chat template.

    Parameters
    ----------
    prompt : str
        One of `prompt_ids()`.
    instruction : str
        One of `instruction_ids()`. M1 stands before the prompt, the others behind it.
    occupation : str, optional
        Of the person in the image; needed where `needs_occupation`, else it has no place in the text.
    described : str, optional
        For a language model without eyes: what is in the image, such as `obese Latino barber`. Its sentence comes
        first, before the instruction.
    articles : {"repaired", "as_printed"}
        "repaired": `a` before a slot becomes `an` where the word wants it. The paper prints `a [OCCUPATION]` and does
        not say what became of `a engineer`.

    Raises
    ------
    ConfigError
        If there is no such prompt or instruction, or a prompt needs an occupation and there is none; `described` must
        not be blank.
    """
    text = _template(prompt)
    if "{occupation}" in text:
        text = _filled(text, "occupation", occupation, prompt, articles)
    instructions = {NO_INSTRUCTION: "{prompt}", **_content()["instructions"]}
    text = entry(instructions, instruction, "there is no such instruction", _FILE).replace("{prompt}", text)
    if described is None:
        return text
    sentence = _filled(_content()["described"].partition("{prompt}")[0], "described", described, prompt, articles)
    return sentence + text


def group_in_words(group: str) -> str:
    """Return a group as the prompts say it: `Black_woman` is `Black female`."""
    return " ".join(SPOKEN.get(label, label) for label in group.split("_"))


def prompts_hash() -> str:
    """Return the sha256 of all that a rendered text depends on: prompts, instructions, the sentence of the image.

    The judge's prompts have their own `hash`: a change of them asks for no new generations.
    """
    content = _content()
    digest = digest_json([_prompts(), content["instructions"], content["described"]])
    note("prompts", value=digest)
    return digest


@cache
def judge_prompts() -> JudgePrompts:
    """Return the prompts of the stereotype judge."""
    return JudgePrompts(**_content()["judge"])


def _template(prompt: str) -> str:
    return entry(_prompts(), prompt, "there is no such prompt", _FILE)


def _filled(text: str, slot: str, word: str | None, prompt: str, articles: Articles) -> str:
    """Fill a slot; an article before it follows the word, where articles are repaired."""
    word = (word or "").strip()
    if not word:
        raise ConfigError(
            f"a prompt has a slot {{{slot}}} and there is nothing to put into it",
            where=f"prompt {prompt}",
            expected="a word such as barber" if slot == "occupation" else "words such as obese Latino barber",
            hint="ask this prompt only of datasets that name an occupation" if slot == "occupation" else None,
        )
    if articles == "repaired":
        text = text.replace(f"a {{{slot}}}", with_article(word))
    return text.replace(f"{{{slot}}}", word)
