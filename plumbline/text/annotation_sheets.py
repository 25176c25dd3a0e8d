"""Sheets for people to annotate: a sample of answers and of words, drawn by a seed.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendices C.2
and D.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from plumbline.errors import MetricError
from plumbline.statistics.seeds import generator
from plumbline.tables.generation_prompts import prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION
from plumbline.text.annotation_cells import Drawn, cells_to_fill
from plumbline.text.annotation_words import judged_words
from plumbline.text.annotations import BLACK_SUBJECT, JUDGE, PERSONALITY, SHEET_COLUMNS
from plumbline.text.race_mentions import names_black_person

BANDS = ("0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1")
"""Ranges of the score; a score at an edge belongs to the upper one, 1 to the last."""

SUBSETS = ("race_gender", "physical_gender")
A_BAND = 5
A_BAND_OF_BLACK_SUBJECTS = 10

KEY_COLUMNS = ("sheet", "text_id", "model", "prompt", "attribute", "group", "scorer", "score", "band")

_EVENT = "toxicity"
_COLUMNS = {
    "generations": ("row_key", "model", "prompt", "instruction", "text", "attribute", "group"),
    "scores": ("row_key", "scorer", "attribute", "score"),
    "associations": ("attribute", "group", "word", "association"),
}
"""What each frame to draw from must have."""
_NEEDS = {
    PERSONALITY: f"scored answers to `personality` about {' or '.join(SUBSETS)}, without an instruction",
    BLACK_SUBJECT: "scored answers to `main` prompts without an instruction that name a Black subject as such",
    JUDGE: "words that are associated with a group and said `language.min_count` times",
}
"""What each sheet is drawn from."""


@dataclass(frozen=True)
class AnnotationSheets:
    """What annotators get, and what they do not see.

    Attributes
    ----------
    sheets : dict of str to DataFrame
        `personality`, `black_subject` and `judge` in `SHEET_COLUMNS` of `plumbline.text.annotations`; `annotator` and
        `label` are empty. Lines are in the order of their ids, which says nothing of their scores. A cell that a
        spreadsheet would run as a formula begins with an apostrophe.
    key : DataFrame
        In `KEY_COLUMNS`: where the texts come from. `text_id` is the row key.
    short : dict of str to tuple of str
        Of each sheet where there was too little to draw from, in words.
    """

    sheets: dict[str, pl.DataFrame]
    key: pl.DataFrame
    short: dict[str, tuple[str, ...]]

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Return where there was too little to draw from, in words, of all sheets."""
        return tuple(line for lines in self.short.values() for line in lines)

    @property
    def empty(self) -> dict[str, str]:
        """Return the sheets for which there was nothing at all, each with the reason in words."""
        nothing = [name for name, sheet in self.sheets.items() if sheet.is_empty()]
        return {name: f"{name}: nothing to draw from; it needs {_NEEDS[name]}" for name in nothing}

    @property
    def told(self) -> tuple[str, ...]:
        """Return what to say of the sheets: which are empty, then what the others are short of."""
        empty = self.empty
        short = (line for name, lines in self.short.items() if name not in empty for line in lines)
        return (*empty.values(), *short)


def annotation_sheets(
    generations: pl.LazyFrame,
    scores: pl.LazyFrame,
    associations: pl.DataFrame,
    *,
    scorer: str,
    seed: int,
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
        In `plumbline.tables.generation_schema.SCORE_SCHEMA`.
    associations : DataFrame
        `attribute, group, word, association`, such as the table `word_associations` of all models; a word that several
        models say counts with its strongest association.
    scorer : str
        Whose toxicity makes the bands.
    seed : int

    Raises
    ------
    MetricError
        If a frame lacks a column.
    """
    for name, frame in (
        ("generations", generations),
        ("scores", scores),
        ("associations", associations.lazy()),
    ):
        _check(frame, _COLUMNS[name], name)
    personality, black = (
        _scored(rows, scores, scorer) for rows in (_personality(generations), _black_subjects(generations))
    )
    texts = {
        PERSONALITY: _drawn(PERSONALITY, personality, [(subset,) for subset in SUBSETS], A_BAND, seed),
        BLACK_SUBJECT: _drawn(BLACK_SUBJECT, black, [()], A_BAND_OF_BLACK_SUBJECTS, seed),
    }
    words = judged_words(associations, seed=seed)
    return AnnotationSheets(
        sheets={
            **{name: _text_sheet(each.rows, generations) for name, each in texts.items()},
            JUDGE: words.rows,
        },
        key=pl.concat([each.rows for each in texts.values()]),
        short={name: each.shortfalls for name, each in (*texts.items(), (JUDGE, words))},
    )


def _personality(generations: pl.LazyFrame) -> pl.LazyFrame:
    return _as_they_are(generations).filter(
        pl.col("prompt") == "personality", pl.col("attribute").is_in(SUBSETS)
    )


def _black_subjects(generations: pl.LazyFrame) -> pl.LazyFrame:
    pictured = pl.col("group").str.to_lowercase().str.split("_").list.contains("black")
    return _as_they_are(generations).filter(
        pl.col("prompt").is_in(prompt_ids("main")), pictured, names_black_person(pl.col("text"))
    )


def _as_they_are(generations: pl.LazyFrame) -> pl.LazyFrame:
    """Return the answers without an instruction that say something."""
    return generations.filter(pl.col("instruction") == NO_INSTRUCTION, pl.col("text").str.strip_chars() != "")


def _check(frame: pl.LazyFrame, columns: Sequence[str], name: str) -> None:
    known = frame.collect_schema().names()
    if missing := [column for column in columns if column not in known]:
        raise MetricError(
            "the frame to draw annotations from lacks a column",
            where=name,
            found=", ".join(known),
            expected=", ".join(missing),
        )


def _scored(rows: pl.LazyFrame, scores: pl.LazyFrame, scorer: str) -> pl.DataFrame:
    """Return what may be drawn, without its texts, by key: the same answer may belong to two images."""
    toxicity = scores.filter(
        pl.col("scorer") == scorer, pl.col("attribute") == _EVENT, pl.col("score").is_not_nan()
    )
    band = pl.sum_horizontal(*(pl.col("score") >= edge for edge in (0.2, 0.4, 0.6, 0.8)))
    return (
        rows.select("row_key", "model", "prompt", "attribute", "group")
        .join(toxicity.select("row_key", "scorer", "score"), on="row_key")
        .with_columns(band=band.cast(pl.Int64))
        .collect(engine="streaming")
        .sort("row_key", "attribute", "group", "score")
        .unique("row_key", keep="first", maintain_order=True)
    )


def _drawn(
    sheet: str, found: pl.DataFrame, strata: Sequence[tuple[str, ...]], wanted: int, seed: int
) -> Drawn:
    """Draw as many of every stratum and band as are wanted, or all there are, and say where there were fewer."""
    parts, shortfalls = [], []
    for stratum in strata:
        own = found.filter(pl.col("attribute") == stratum[0]) if stratum else found
        for number, band in enumerate(BANDS):
            rows = own.filter(pl.col("band") == number)
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
            pl.lit(sheet).alias("sheet"),
            pl.col("band").replace_strict(dict(enumerate(BANDS)), return_dtype=pl.String),
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
