"""Sentences about people that name no gender, race or age, to train on beside a dataset's captions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from plumbline.tables.data_files import data_yaml
from plumbline.tables.suites import with_article


@dataclass(frozen=True)
class NeutralCaptions:
    """The sentences of the data file.

    Attributes
    ----------
    id, source : str
    version : int
    texts : tuple of str
        Occupations and qualities in every template, and activities.
    rewordings : mapping of str to str
        Beginning of a caption -> another that means the same.
    """

    id: str
    version: int
    source: str
    texts: tuple[str, ...]
    rewordings: Mapping[str, str]


@cache
def neutral_captions() -> NeutralCaptions:
    """Return the sentences of the data file."""
    content = data_yaml("neutral_captions.yaml")
    persons = [
        template.format(with_article(person))
        for template in content["templates"]
        for person in content["persons"]
    ]
    return NeutralCaptions(
        id=content["id"],
        version=content["version"],
        source=content["source"],
        texts=(*persons, *(f"a person {activity}" for activity in content["activities"])),
        rewordings=content["rewordings"],
    )
