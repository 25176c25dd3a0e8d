"""Texts that name a protected attribute: what Bias Prompts projects out, and which pairs it draws together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from plumbline.errors import ConfigError
from plumbline.tables.data_files import data_yaml
from plumbline.tables.suites import with_article


@dataclass(frozen=True)
class AttributeTexts:
    """The texts of one attribute.

    Attributes
    ----------
    prompts : tuple of str
        Each names one group and nothing else, such as `a photo of a woman`.
    pairs : tuple of (str, str)
        Texts that differ in the group alone, such as `a photo of a male doctor` and `a photo of a female doctor`:
        every two groups, over every occupation.
    contrast : (str, str)
        Two of the prompts, whose difference stands for the attribute where one direction has to.
    """

    prompts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    contrast: tuple[str, str]

    @property
    def texts(self) -> tuple[str, ...]:
        """Return every distinct text, prompts first."""
        return tuple(dict.fromkeys([*self.prompts, *(text for pair in self.pairs for text in pair)]))


@cache
def attribute_texts(attribute: str) -> AttributeTexts:
    """Return the texts of `gender`, `race` or `age`.

    Raises
    ------
    ConfigError
        If the data file has no such attribute.
    """
    content: dict[str, Any] = data_yaml("attribute_texts.yaml")
    if attribute not in content["attributes"]:
        raise ConfigError(
            "there are no texts that name this attribute",
            where="plumbline/tables/attribute_texts.yaml",
            found=attribute,
            expected=", ".join(content["attributes"]),
        )
    about = content["attributes"][attribute]

    def rendered(word: str) -> str:
        return str(content["template"].format(with_article(word)))

    one, other = about["contrast"]
    return AttributeTexts(
        prompts=tuple(map(rendered, about["prompts"])),
        pairs=tuple(
            (rendered(f"{first} {occupation}"), rendered(f"{second} {occupation}"))
            for occupation in content["occupations"]
            for first, second in combinations(about["terms"], 2)
        ),
        contrast=(rendered(one), rendered(other)),
    )
