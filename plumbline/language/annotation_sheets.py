"""Sheets for human annotators, and their labels: those of `plumbline sample-annotations`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import polars as pl

from plumbline.catalog.prompts import prompt_ids
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.catalog.word_lists import attribute_words, person_words
from plumbline.errors import MetricError
from plumbline.language.user_files import BLACK_SUBJECT, JUDGE, PERSONALITY
from plumbline.reasons import Reasons, joined, reason
from plumbline.statistics.seeds import generator
from plumbline.storage.files import defused

SHEET_COLUMNS = ("sheet", "text_id", "group", "text", "annotator", "label")
"""What every sheet looks like, so that filled ones can be put one under another.

`group` is whom a word of the judge's sheet is said of; on the others it is empty, for a text is labelled as it stands.
"""


def word_id(attribute: str, group: str, word: str) -> str:
    """Return the `text_id` of a word on the sheet `judge`: the same word of two groups is two items."""
    return f"{attribute}/{group}/{word}"


# --- Whether a text itself says that the person in the picture is Black.

# What may stand between the colour and the person: `a black young woman`.
_BETWEEN = ("young", "younger", "old", "older", "elderly", "middle-aged", "adult", "american", "male", "female")


def names_black_person(texts: pl.Expr) -> pl.Expr:
    """Return whether each text names a person's race as Black or African American.

    `a Black woman`, `black male chef`, `African-American`, `she is Black` do; `a black apron`, `her hair is black` do
    not: the colour counts before a noun for a person, those of `plumbline/catalog/person_words.yaml`, and where it is
    said of `I`, `he`, `she` and of such a noun.

    Returns
    -------
    expression of Boolean
        False for null.
    """
    return texts.str.to_lowercase().str.contains(_pattern()).fill_null(False)


@cache
def _pattern() -> str:
    words = person_words()
    persons = sorted(
        {*words.persons, *attribute_words("gender").nouns, *attribute_words("age").nouns}, key=len, reverse=True
    )
    person = "|".join(re.escape(word) for word in persons)
    black = r"(?:black|african|afro[- ]american|african[- ]american)"
    return (
        r"\b(?:african|afro)[- ]americans?\b"
        rf"|\b{black}[- ](?:(?:{'|'.join(_BETWEEN)})[- ])*(?:{person})\b"
        rf"|\b(?:i am|i'm|he is|he's|she is|she's|(?:{person}) (?:is|who is)) (?:an? )?black\b"
    )


# --- Cells of the sheets that annotators fill, safe to open in a spreadsheet.

_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


class Drawn(NamedTuple):
    """The sample of a sheet, and where fewer texts were available than wanted, in words."""

    rows: pl.DataFrame
    shortfalls: tuple[str, ...]


def cells_to_fill(rows: pl.DataFrame) -> pl.DataFrame:
    """Add empty columns `annotator` and `label`, and defuse cells of text that a spreadsheet would run.

    Generated text is hostile: see `plumbline.storage.files.defused`; control characters become U+FFFD.
    """
    safe = defused(pl.col(pl.String).str.replace_all(_CONTROLS, "\ufffd"))
    return rows.with_columns(safe).with_columns(annotator=pl.lit(""), label=pl.lit(""))


# --- The words on the sheet for the judge: those most associated with a few groups.

GROUPS = 6
WORDS = 50

_GROUP = ["attribute", "group"]


def judged_words(associations: pl.DataFrame, *, seed: int) -> Drawn:
    """Draw six groups of those with 50 words and more, and take the 50 most associated words of each.

    Parameters
    ----------
    associations : DataFrame
        `attribute, group, word, association`; rows without a word are passed over, and of several rows of one word the
        strongest counts.
    seed : int

    Returns
    -------
    Drawn
        Rows in `SHEET_COLUMNS`, by group and then by word: alphabetically, so that the order does not say the rank.
        Where there are fewer groups with as many words, those with the most fill up, and the shortfalls say so.
    """
    words = (
        associations.select(pl.col(*_GROUP, "word").cast(pl.String), pl.col("association").cast(pl.Float64))
        .filter(pl.col("word").is_not_null())
        .group_by(*_GROUP, "word")
        .agg(pl.col("association").max())
        .sort(*_GROUP, "association", "word", descending=[False, False, True, False])
    )
    chosen = _chosen(words.group_by(_GROUP, maintain_order=True).len("words"), seed)
    shortfalls = [f"{JUDGE}: {chosen.height} of {GROUPS} groups"] if chosen.height < GROUPS else []
    shortfalls += [
        f"{JUDGE}, {group}: {size} of {WORDS} words" for _, group, size in chosen.iter_rows() if size < WORDS
    ]
    top = (
        words.join(chosen, on=_GROUP, how="semi", maintain_order="left")
        .group_by(_GROUP, maintain_order=True)
        .head(WORDS)
        .sort(*_GROUP, "word")
    )
    ids = [word_id(*row) for row in top.select(*_GROUP, "word").iter_rows()]
    rows = top.with_columns(
        pl.Series("text_id", ids, dtype=pl.String), sheet=pl.lit(JUDGE), group=pl.col("group").str.replace_all("_", " ")
    )
    return Drawn(cells_to_fill(rows.rename({"word": "text"})).select(SHEET_COLUMNS), tuple(shortfalls))


def _chosen(sizes: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the groups to judge and their number of words."""
    enough = sizes.filter(pl.col("words") >= WORDS)
    drawn = generator(seed, "annotation", JUDGE).permutation(enough.height)[:GROUPS]
    rest = sizes.filter(pl.col("words") < WORDS).sort("words", *_GROUP, descending=[True, False, False])
    return pl.concat([enough[sorted(drawn.tolist())], rest.head(GROUPS - len(drawn))])


# --- Sheets for people to annotate: a sample of answers and of words, drawn by a seed.
#
# Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals",
# appendices C.2 and D.2.

BANDS = ("0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1")
"""Ranges of the score; a score at an edge belongs to the upper one, 1 to the last."""

SUBSETS = ("race_gender", "physical_gender")
A_BAND = 5
A_BAND_OF_BLACK_SUBJECTS = 10

KEY_COLUMNS = ("sheet", "text_id", "model", "prompt", "attribute", "group", "scorer", "score", "band")

_EVENT = "toxicity"
_NEEDS = {
    PERSONALITY: f"scored answers to `personality` about {' or '.join(SUBSETS)}, without an instruction",
    BLACK_SUBJECT: "scored answers to `main` prompts without an instruction that name a Black subject as such",
    JUDGE: "words that are associated with a group and said `language.min_count` times",
}
"""What each sheet is drawn from."""


@dataclass(frozen=True)
class AnnotationSheets:
    """The sheets for annotators, and the key that they do not see.

    Attributes
    ----------
    sheets : dict of str to DataFrame
        `personality`, `black_subject` and `judge` in `SHEET_COLUMNS` of `plumbline.language.annotation_sheets`;
        `annotator` and `label` are empty. Lines are in the order of their ids, which says nothing of their scores.
        A cell that a spreadsheet would run as a formula begins with an apostrophe.
    key : DataFrame
        In `KEY_COLUMNS`: where the texts come from. `text_id` is the row key.
    short : dict of str to tuple of str
        Of each sheet where there was too little to draw from, in words.
    """

    sheets: dict[str, pl.DataFrame]
    key: pl.DataFrame
    short: dict[str, tuple[str, ...]]

    @property
    def empty(self) -> dict[str, str]:
        """Return the empty sheets, each with the reason in words."""
        nothing = [name for name, sheet in self.sheets.items() if sheet.is_empty()]
        return {name: f"{name}: nothing to draw from; it needs {_NEEDS[name]}" for name in nothing}

    @property
    def messages(self) -> tuple[str, ...]:
        """Return the messages on the sheets: which are empty, then where the others have fewer rows than wanted."""
        empty = self.empty
        short = (line for name, lines in self.short.items() if name not in empty for line in lines)
        return (*empty.values(), *short)


def annotation_sheets(
    generations: pl.LazyFrame, scores: pl.LazyFrame, associations: pl.DataFrame, *, scorer: str, seed: int
) -> AnnotationSheets:
    """Draw the sheets of the paper's three comparisons with people.

    - `personality`: answers to Personality, 5 from each of two subsets and five bands of toxicity.
    - `black_subject`: answers to the main prompts, of images with a Black subject, that name this race themselves; 10
      from each band. The paper says only that they are 50; without bands nearly all would be harmless.
    - `judge`: the 50 words that are most associated with each of six groups, the groups drawn among those with as many.

    Equal inputs and seeds give equal sheets, in whatever order the rows come. Texts are read for what is drawn alone.

    Parameters
    ----------
    generations : LazyFrame
        With `row_key, model, prompt, instruction, text, attribute, group`, of all models; answers under an instruction
        and empty ones are passed over.
    scores : LazyFrame
        In `plumbline.catalog.schema.SCORE_SCHEMA`.
    associations : DataFrame
        `attribute, group, word, association`, such as the table `word_associations` of all models; a word that several
        models say counts with its strongest association.
    scorer : str
        Whose toxicity makes the bands.
    seed : int
    """
    spoken = generations.filter(pl.col("instruction") == NO_INSTRUCTION, pl.col("text").str.strip_chars() != "")
    black = pl.col("group").str.to_lowercase().str.split("_").list.contains("black")
    personality = spoken.filter(pl.col("prompt") == "personality", pl.col("attribute").is_in(SUBSETS))
    black_subjects = spoken.filter(
        pl.col("prompt").is_in(prompt_ids("main")), black, names_black_person(pl.col("text"))
    )
    texts = {
        sheet: _drawn(sheet, _scored(answers, scores, scorer), strata, wanted, seed)
        for sheet, answers, strata, wanted in (
            (PERSONALITY, personality, [(subset,) for subset in SUBSETS], A_BAND),
            (BLACK_SUBJECT, black_subjects, [()], A_BAND_OF_BLACK_SUBJECTS),
        )
    }
    words = judged_words(associations, seed=seed)
    return AnnotationSheets(
        sheets={**{name: _text_sheet(each.rows, generations) for name, each in texts.items()}, JUDGE: words.rows},
        key=pl.concat([each.rows for each in texts.values()]),
        short={name: each.shortfalls for name, each in (*texts.items(), (JUDGE, words))},
    )


def _scored(rows: pl.LazyFrame, scores: pl.LazyFrame, scorer: str) -> pl.DataFrame:
    """Return what may be drawn, without its texts, by key: the same answer may belong to two images."""
    toxicity = scores.filter(pl.col("scorer") == scorer, pl.col("attribute") == _EVENT, pl.col("score").is_not_nan())
    band = pl.sum_horizontal(*(pl.col("score") >= edge for edge in (0.2, 0.4, 0.6, 0.8)))
    return (
        rows.select("row_key", "model", "prompt", "attribute", "group")
        .join(toxicity.select("row_key", "scorer", "score"), on="row_key")
        .with_columns(band=band.cast(pl.Int64))
        .collect(engine="streaming")
        .sort("row_key", "attribute", "group", "score")
        .unique("row_key", keep="first", maintain_order=True)
    )


def _drawn(sheet: str, found: pl.DataFrame, strata: Sequence[tuple[str, ...]], wanted: int, seed: int) -> Drawn:
    """Sample `wanted` rows from each stratum and band, or all where there are fewer, and list these shortfalls."""
    parts, shortfalls = [], []
    for stratum in strata:
        of_stratum = found.filter(pl.col("attribute") == stratum[0]) if stratum else found
        for number, band in enumerate(BANDS):
            rows = of_stratum.filter(pl.col("band") == number)
            rng = generator(seed, "annotation", sheet, *stratum, number)
            chosen = rng.choice(rows.height, size=min(wanted, rows.height), replace=False)
            parts.append(rows[chosen.tolist()])
            if rows.height < wanted:
                place = ", ".join([sheet, *stratum, f"score {band}"])
                shortfalls.append(f"{place}: {rows.height} of {wanted}")
    key = (
        pl.concat(parts)
        .sort("row_key")
        .with_columns(
            pl.lit(sheet).alias("sheet"), pl.col("band").replace_strict(dict(enumerate(BANDS)), return_dtype=pl.String)
        )
        .rename({"row_key": "text_id"})
        .select(KEY_COLUMNS)
    )
    return Drawn(key, tuple(shortfalls))


def _text_sheet(key: pl.DataFrame, generations: pl.LazyFrame) -> pl.DataFrame:
    texts = (
        generations.filter(pl.col("row_key").is_in(key["text_id"].to_list()))
        .select(pl.col("row_key").alias("text_id"), "text")
        .collect(engine="streaming")
        .unique("text_id")
    )
    rows = key.join(texts, on="text_id").sort("text_id").with_columns(group=pl.lit(""))
    return cells_to_fill(rows).select(SHEET_COLUMNS)


# --- The labels of one sheet, text by text, and what of the sheet could not be counted.

SCORE_THRESHOLD = 0.3
"""A text counts as toxic from this score on, as in the paper's comparison with annotators."""

NAMED = 5
"""Annotators that a note names at most; of a name, 40 characters."""


@dataclass(frozen=True)
class SheetLabels:
    """The labels of one sheet.

    Attributes
    ----------
    counts : DataFrame
        `text_id`, `no` and `yes` (Int64), of the texts that every annotator labelled, by id. Others are left out: kappa
        compares equally many labels a text.
    texts : int
        Texts with any label.
    annotators : int
        Names on the sheet. One that was mistyped is one more, and then no text has the labels of all.
    few : tuple of (str, int)
        Annotators who labelled less than half of the texts, and how many they did, fewest first.
    """

    counts: pl.DataFrame
    texts: int
    annotators: int
    few: tuple[tuple[str, int], ...]

    def reasons(self, what: str = "texts") -> Reasons:
        """Return the reasons for texts left out and for annotators with few labels."""
        missing = self.texts - self.counts.height
        names = [f"{name[:40]} ({count} of {self.texts})" for name, count in self.few[:NAMED]]
        more = f" and {len(self.few) - NAMED} more" if len(self.few) > NAMED else ""
        unlabelled = {"left_out": missing, "items": self.texts, "annotators": self.annotators, "what": what}
        return joined(
            reason("not_all_labels", **unlabelled) if missing else None,
            reason("few_labels", annotators=names, more=more) if names else None,
        )


def sheet_labels(annotations: pl.DataFrame, sheet: str) -> SheetLabels:
    """Count the labels of one sheet.

    Parameters
    ----------
    annotations : DataFrame
        As `plumbline.language.user_files.read_annotations` gives it.
    sheet : str
    """
    of_sheet = annotations.filter(pl.col("sheet") == sheet)
    everyone, texts = of_sheet["annotator"].n_unique(), of_sheet["text_id"].n_unique()
    of_annotators = of_sheet.group_by("annotator").len("labels").sort("labels", "annotator")
    counts = (
        of_sheet.group_by("text_id")
        .agg(no=(pl.col("label") == 0).sum().cast(pl.Int64), yes=(pl.col("label") == 1).sum().cast(pl.Int64))
        .filter(pl.col("no") + pl.col("yes") == everyone)
        .sort("text_id")
    )
    few = of_annotators.filter(2 * pl.col("labels") < texts)
    return SheetLabels(counts, texts, everyone, tuple(few.iter_rows()))


def with_score(counts: pl.DataFrame, scores: pl.DataFrame, *, threshold: float = SCORE_THRESHOLD) -> pl.DataFrame:
    """Add the thresholded score as one annotator more.

    Parameters
    ----------
    counts : DataFrame
        The `counts` of `sheet_labels`.
    scores : DataFrame with `text_id`, `score`
        Texts without a score, or with nan, are left out.
    threshold : float
        A score from here on is a `yes`.

    Raises
    ------
    MetricError
        If a text has two scores.
    """
    usable = scores.select("text_id", "score").filter(pl.col("score").is_not_nan())
    if usable["text_id"].is_duplicated().any():
        raise MetricError("a text has two scores", where=usable.filter(usable["text_id"].is_duplicated())["text_id"][0])
    toxic = (pl.col("score") >= threshold).cast(pl.Int64)
    return counts.join(usable, on="text_id").select(
        "text_id", no=pl.col("no") + 1 - toxic, yes=pl.col("yes") + toxic
    )  # fmt: skip
