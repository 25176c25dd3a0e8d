"""Texts that name no label of an attribute, texts made so, and texts made to name one.

Source: Hirota et al., "SANER: Annotation-free Societal Attribute Neutralizer for Debiasing CLIP" (ICLR 2025),
section 3: attribute neutralisation, and the attribute-specific descriptions of a neutral one. The words are
those of `plumbline/tables/person_words.yaml`. Only whole words count, whatever their case: letters, digits
and hyphens between letters hold a word together (`salesman` is a word of its own, `man-made` none), an
apostrophe or underscore ends one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from plumbline.errors import MetricError
from plumbline.tables.person_words import attribute_words, person_words

_START = r"(?<![^\W_])(?<![^\W_][-\u2010\u2011])"
_END = r"(?![^\W_])(?![-\u2010\u2011][^\W_])"
_BETWEEN = r"[\s_/\-\u2010\u2011]+"
_GAP = r"[\s_]+"
_WORD = r"[^\W_]+(?:[-\u2010\u2011'’][^\W_]+)*"
_ARTICLE = re.compile(rf"{_START}(an?)(\s+)$", re.IGNORECASE)
# By sound: a European, a unicyclist, a one-armed person; an heir, an honest person, an hour.
_CONSONANT_SOUND = re.compile(r"(?:eu|uni(?!n)|us[ae]|one\b|once\b)", re.IGNORECASE)
_VOWEL_SOUND = re.compile(r"(?:[aeiou]|hour|heir|hon(?:est|ou?r))", re.IGNORECASE)


def is_neutral(text: str, attribute: str) -> bool:
    """Return whether a text names no label of an attribute (`gender`, `race`, `age`).

    `a photo of a thief` is neutral for all three; so is `a man in a black suit`, for race and age. An empty
    text is neutral.
    """
    return re.search(specific_pattern(attribute), text) is None


@cache
def specific_pattern(attribute: str) -> str:
    """Return the regular expression that is found in exactly the texts that name a label of an attribute.

    It is complete in itself (flags included), so that a fitted mitigation can carry it; groups say what was
    found.
    """
    words = attribute_words(attribute)
    kinds = {
        "phrase": words.phrases,
        "noun": [_any(words.nouns)],
        "pronoun": [_any(words.pronouns)] if words.pronouns else [],
        "modifier": [_any(words.modifiers)],
        "before_person": [_before_persons(words.before_persons)] if words.before_persons else [],
    }
    found = [f"(?P<{kind}>{'|'.join(parts)})" for kind, parts in kinds.items() if parts]
    return f"(?i){_START}(?:{'|'.join(found)}){_END}"


def neutralised(text: str, attribute: str) -> str:
    """Return a text without the labels of an attribute that it names; a neutral text comes back as it is.

    A noun is replaced (woman -> person, men -> people, girl -> child), an adjective goes, or becomes `person`
    where it stood for one; articles next to a change follow the word after them, and capitals are kept. `a
    photo of an Asian woman` gives `a photo of an Asian person` for gender and `a photo of a woman` for race.
    """
    pattern = specific_pattern(attribute)
    # What goes can bring another word next to a person: until there is none. From the right, so that what
    # follows a change is final.
    while found := list(re.finditer(pattern, text)):
        for match in reversed(found):
            text = _replaced(text, match, attribute)
    return text


def variants(text: str, attribute: str) -> tuple[str, ...]:
    """Return the texts that name each label of an attribute in turn, made of a neutral one.

    The label's word goes before every person: `a photo of a person` gives `a photo of a male person` and `a
    photo of a female person`. Where a text names no person that is known, the word goes after the first
    article that follows `photo of` and the like (`a photo of a zookeeper` gives `a photo of a male
    zookeeper`), and without one before the first word; an empty text becomes the word alone.

    Returns
    -------
    tuple of str
        In the order of the labels in the data file: gender 2, race 7, age 2.

    Raises
    ------
    MetricError
        If the text is not neutral.
    """
    if not is_neutral(text, attribute):
        raise MetricError(
            f"a text that names a label of `{attribute}` has no variants",
            found=text,
            hint="neutralise it first",
        )
    places = [match.start() for match in re.finditer(_persons(), text)] or [_place(text)]
    made = []
    for word in attribute_words(attribute).variants.values():
        variant = text
        for place in reversed(places):
            variant = _with_article(variant[:place], f"{word} {variant[place:]}")
        made.append(variant.strip())
    return tuple(made)


def _any(words: Iterable[str]) -> str:
    """Return an expression for any of some words, the longest first, whatever their order: fits are known by it."""
    ordered = sorted(words, key=lambda word: (-len(word), word))
    return "(?:" + "|".join(_BETWEEN.join(map(re.escape, word.split())) for word in ordered) + ")"


@cache
def _known_persons() -> str:
    words = person_words()
    nouns = [noun for attribute in words.attributes.values() for noun in attribute.nouns]
    return f"{_START}{_any({*words.persons, *nouns})}{_END}"


@cache
def _persons() -> str:
    """Return an expression for a run of words for one person: `police officer`."""
    return f"(?i){_known_persons()}(?:{_GAP}{_known_persons()})*"


def _before_persons(words: Iterable[str]) -> str:
    """Return an expression for words that count up to three words before a person, or as the last noun."""
    others = rf"(?:{_GAP}(?!{_any(person_words().no_nouns)}{_END}){_WORD}){{0,2}}"
    last = rf"(?:(?<=\ba\s)|(?<=\ban\s)){_any(words)}(?=\W*$)"
    return rf"{_any(words)}(?={others}{_GAP}{_known_persons()})|{last}"


def _replaced(text: str, match: re.Match[str], attribute: str) -> str:
    before, found, after = text[: match.start()], match.group(), text[match.end() :]
    if re.search(r",\s*$", before) and re.match(r"\s*(?:[.]|$|,(?!\s*(?:and|or)\b))", after):
        # A label in apposition goes with its comma: `a photo of a woman, middle-aged`.
        return re.sub(r"\s*,\s*$", "", before) + after
    starts_sentence = re.search(r"(?:^|[.!?]\s+)$", before) and found[:1].isupper()
    neutral = _neutral_form(match, attribute, before, after)
    if neutral:
        neutral = neutral.upper() if len(found) > 1 and found.isupper() else neutral
        rest = neutral + after
    else:
        rest = after if re.search(r"[^\W_]$", before) else re.sub(rf"^{_GAP}", "", after)
        before = before if re.match(r"[^\W_]", rest) else before.rstrip()
    return _with_article(before, rest[:1].upper() + rest[1:] if starts_sentence else rest)


def _neutral_form(match: re.Match[str], attribute: str, before: str, after: str) -> str:
    """Return what stands in the place of a word; empty where nothing does."""
    words, found = attribute_words(attribute), re.sub(_BETWEEN, " ", match.group().lower())
    if match.lastgroup == "pronoun":
        return words.pronouns[found]
    if re.match(rf"(?i){_GAP}{_known_persons()}", after):
        return ""
    if match.lastgroup == "noun":
        return words.nouns[found]
    noun_follows = re.match(rf"(?i){_GAP}(?!{_any(person_words().no_nouns)}{_END})[^\W_]", after)
    if noun_follows or (match.lastgroup == "phrase" and not _ARTICLE.search(before)):
        return ""
    return "person"


def _with_article(before: str, after: str) -> str:
    """Join two parts of a text; an article at the end of the first follows the sound of the second."""
    match = _ARTICLE.search(before)
    if not match or not after:
        return before + after
    vowel = _VOWEL_SOUND.match(after) and not _CONSONANT_SOUND.match(after)
    article = match[1][0] + (("N" if match[1].isupper() and after[:2].isupper() else "n") if vowel else "")
    return before[: match.start()] + article + match[2] + after


def _place(text: str) -> int:
    """Return where a label's word goes in a text without a known person."""
    picture = re.search(rf"(?i){_START}{_any(person_words().pictures)}\s+of\s+", text)
    start = picture.end() if picture else 0
    article = re.search(rf"(?i){_START}(?:an?|the)\s+(?=\S)", text[start:])
    if article:
        return start + article.end()
    return start + len(text[start:]) - len(text[start:].lstrip())
