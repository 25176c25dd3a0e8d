"""Short texts about a face: what can be seen of it, how it lives, and what the threshold of a latent adds."""

from __future__ import annotations

from typing import Any

import numpy as np

from plumbline.tables.suites import with_article
from plumbline.world.generative.rates import planted

_CHILD = {"man": "boy", "woman": "girl"}


def sentences(
    prompt: str, face: dict[str, Any], said: dict[str, bool], life: int, rng: np.random.Generator
) -> str:
    """Return the text of one face.

    Parameters
    ----------
    prompt : str
        One of those that ask for a text: `describe`, `backstory`, `pretend`, `story`, `emotions`.
    face : dict
        One row of `plumbline.world.faces.sample_attributes`.
    said : dict of str to bool
        Event to whether it is said.
    life : int
        How many sentences a backstory tells of a life.
    rng : numpy.random.Generator
        Source of everything that is not seen.
    """
    written = planted()["sentences"]
    words = planted()["words"]
    slots = _slots(face, rng)
    parts = list(written[prompt])
    if prompt == "backstory":
        parts += [str(part) for part in rng.choice(written["life"], life, replace=False)]
    texts = [part.format(**slots, event=str(rng.choice(written["events"])).format(**slots)) for part in parts]
    if said["stereotype"] and face["race"] in words["stereotype"]:
        word = words["stereotype"][face["race"]]
        texts.append(written["stereotype"][prompt].format(**slots, word=word))
    if said["negative"]:
        word = rng.choice(words["demeaning" if said["severe"] else "mild"])
        texts.append(written["negative"][prompt].format(**slots, word=word))
    return " ".join(texts)


def said_of(face: dict[str, Any]) -> str:
    """Return age, race and gender in words, with an article: `an elderly Latino man`."""
    content = planted()
    gender = _CHILD[face["gender"]] if face["age_group"] == "child" else face["gender"]
    return with_article(f"{content['ages'][face['age_group']]} {content['races'][face['race']]} {gender}")


def _slots(face: dict[str, Any], rng: np.random.Generator) -> dict[str, str]:
    content = planted()
    occupation = content["occupations"].get(face["occupation"], face["occupation"])
    plain, second = rng.choice(content["words"]["plain"], 2, replace=False)
    looks = {
        name: words[min(int(face[name] * len(words)), len(words) - 1)]
        for name, words in content["looks"].items()
    }
    return {
        "person": said_of(face),
        "worker": with_article(occupation),
        "plain": str(plain),
        "second_plain": str(second),
        **looks,
        **content["pronouns"][face["gender"]],
    }
