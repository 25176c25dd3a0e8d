"""The words in which metrics, events and groups are told to a reader, and the order of probes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from plumbline.catalog.suites import TASKS, VALENCES, VARIANT_SUITES, load_suite, suite_names

EVENT_TITLES = {
    "crime": "crime labels",
    "non_human": "non-human labels",
    "negative_communion": "negative communion words",
    "negative_agency": "negative agency words",
    "mean_of_tasks": "mean of the three tasks",
}
HARM_EVENTS = ("crime", "non_human", "negative_communion", "negative_agency")
EVENT_ORDER = ("crime", "negative_communion", "negative_agency", "mean_of_tasks")
ATTRIBUTE_TITLES = {
    "gender": "gender",
    "race": "race",
    "age_group": "age group",
    "gender_race": "gender × race",
    "race_gender": "race × gender",
    "age_group_gender": "age group × gender",
    "occupation_gender": "occupation × gender",
    "physical": "physical characteristic",
    "physical_gender": "physical characteristic × gender",
    "physical_race": "physical characteristic × race",
    "auto_gender": "automatic gender",
}
DIMENSIONS = ("agency", "belief", "communion")
"""Of social perception, in the order of the papers; each has a positive and a negative pole."""
_JOINED_SUITES = ("outcomes", "trident_mixed", "generation")
"""What the metric table has beside the suites that have a file."""
GROUP_NOUNS = {"man": "men", "woman": "women"}


@cache
def probes() -> tuple[tuple[str, str], ...]:
    """Return the Trident probes as (word, valence), negative first, in the order of the suite."""
    suite = load_suite("trident", classes="fairface")
    return tuple((c.id, c.category) for v in VALENCES for c in suite.candidates if c.category == v)


def probes_of(valence: str) -> tuple[str, ...]:
    """Return the Trident probes of a valence."""
    return tuple(word for word, of in probes() if of == valence)


def probe_words(valence: str) -> str:
    """Return the Trident probes of a valence as a noun phrase: `negative words (thief, criminal …)`."""
    return f"{valence} words ({', '.join(probes_of(valence)[:2])} …)"


def is_own_suite(suite: str) -> bool:
    """Return whether a suite of the metric table is one of the audit's own."""
    return suite not in (*suite_names(), *_JOINED_SUITES)


def has_no_question(suite: str) -> bool:
    """Return whether a suite of labels is an own one, or a packaged one that no question of the scorecard names."""
    if is_own_suite(suite):
        return True
    known = (*TASKS, *VARIANT_SUITES, *_JOINED_SUITES)
    return suite not in known and load_suite(suite).family == "outcomes"


def event_title(event: str, suite: str | None = None) -> str:
    """Return an event as a noun phrase for headings and axes: `crime labels`; of an own suite `low paid (jobs)`."""
    title = EVENT_TITLES.get(event, event.replace("_", " "))
    return f"{title} ({suite_title(suite)})" if suite and is_own_suite(suite) else title


def attribute_title(attribute: str) -> str:
    """Return an attribute in words."""
    return ATTRIBUTE_TITLES.get(attribute, attribute.replace("_", " "))


def group_title(group: str) -> str:
    """Return a group label for an axis: `Latino Hispanic`, `Black man`."""
    return group.replace("_", " ")


def group_faces(attribute: str, group: str) -> str:
    """Return a group as the subject of a sentence: `Black faces`, `faces of women`, `images labelled “deaf”`."""
    if attribute in ("gender", "auto_gender"):
        return f"faces of {GROUP_NOUNS.get(group, f'{group} people')}"
    return f"{group_title(group)} faces" if attribute in ATTRIBUTE_TITLES else f"images labelled “{group_title(group)}”"


def listed(words: Iterable[str]) -> str:
    """Return words as an enumeration: `a, b and c`; `nothing` without one."""
    *first, last = list(words) or ["nothing"]
    return f"{', '.join(first)} and {last}" if first else last


def sentence_start(text: str) -> str:
    """Return the text with its first letter in upper case and the rest as it is."""
    return text[:1].upper() + text[1:]


def suite_title(suite: str) -> str:
    """Return a prompt suite in words."""
    titles = {
        "crime": f"crime and non-human, top-1 of {len(load_suite('crime').candidates)} labels",
        "crime_pooled": "crime against non-human, each pooled",
        "crime_words": "crime words one by one",
        "communion_photo": "communion, as `photo of a`",
        "agency_photo": "agency, as `photo of a`",
        "perception_words": "words of social perception without a template",
        "trident": "Trident, single attribute",
        "trident_mixed": "Trident, mixed attributes",
        "trident_composite": "Trident, composite labels as candidates",
        "outcomes": "three tasks together",
        "generation": "generated texts",
    }
    return titles.get(suite, suite.replace("_", " "))


def is_composite(attribute: str) -> bool:
    """Return whether an attribute crosses two others, as `gender_race` and `site × sex` do."""
    return "×" in attribute_title(attribute)
