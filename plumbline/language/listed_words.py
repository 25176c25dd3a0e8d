"""The words that are associated with each group of a subset, with how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import stdtr, stdtrit

from plumbline.language.corpus import BLOCKS, Corpus
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.clusters import few_sets
from plumbline.statistics.multiplicity import q_values
from plumbline.tables.schema import Schema
from plumbline.text.association_errors import association_errors
from plumbline.text.associations import word_associations
from plumbline.text.counting import count_words
from plumbline.text.occurrences import Occurrences, count_occurrences
from plumbline.text.stop_words import stop_words

LISTED = 200
"""Words that are listed of a group, the most associated first; all that pass are counted."""

ONE_BLOCK = "no interval: said in one scene, or one block of scenes, only"

WORD_ASSOCIATIONS: Schema = {
    "dataset": pl.String,
    "attribute": pl.String,
    "group": pl.String,
    "word": pl.String,
    "association": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "p": pl.Float64,
    "q": pl.Float64,
    "count": pl.Int64,
    "n": pl.Int64,
    "count_others": pl.Int64,
    "n_others": pl.Int64,
    "texts": pl.Int64,
    "stereotype": pl.Boolean,
    "reason": pl.String,
}
"""One row a listed word of a group; a group of which nothing can be said has one row with a null word and the reason.

`count` of `n` words of the group's answers, `count_others` of `n_others` of the other groups of the same subset;
`texts`: answers about the group that say the word at all. `p` (two-sided) asks whether the word is said of the others
equally often, by the error over blocks of whole sets; `q` is Benjamini-Hochberg over every word of the subset that was
said often enough, those that are not listed counted as p = 1. `stereotype`: the judge's answer, null without one.
"""


@dataclass(frozen=True)
class Subset:
    """The associations of one dataset and attribute.

    Attributes
    ----------
    parts : DataFrame
        Rows of `Corpus.parts`: its groups.
    passed : DataFrame
        Every word above the threshold, by group, strongest first; columns of `word_associations`.
    candidates : dict of str to int
        Group -> words that were said of it often enough to be asked about; a group without any is absent.
    sets : int
    """

    parts: pl.DataFrame
    passed: pl.DataFrame
    candidates: dict[str, int]
    sets: int

    @property
    def listed(self) -> pl.DataFrame:
        """Return the strongest words of each group."""
        return self.passed.filter(pl.int_range(pl.len()).over("group") < LISTED)


def associated_subsets(corpus: Corpus, *, settings: LanguageSettings) -> list[Subset]:
    """Count every word of the corpus, in one reading, and return the associations within each subset."""
    said = count_words(corpus.by_part(), group="part").with_columns(part=pl.col("group").cast(pl.Int64))
    return [
        _subset(corpus, parts, said, settings) for parts in corpus.parts.partition_by("dataset", "attribute")
    ]


def _subset(corpus: Corpus, parts: pl.DataFrame, said: pl.DataFrame, settings: LanguageSettings) -> Subset:
    counts = said.join(parts.select("part", name="group"), on="part").select("word", "count", group="name")
    left_out = list(stop_words())
    passed = word_associations(
        counts,
        min_count=settings.min_count,
        threshold=settings.association_threshold,
        log_base=settings.log_base,
        stop_words=left_out,
    )
    asked = counts.filter(pl.col("count") >= settings.min_count, ~pl.col("word").is_in(left_out))
    sets = corpus.blocks.join(parts, on=["dataset", "attribute"], how="semi").height
    return Subset(parts, passed, dict(asked.group_by("group").len().iter_rows()), sets)


def word_tables(corpus: Corpus, subsets: list[Subset], *, settings: LanguageSettings) -> list[pl.DataFrame]:
    """Find in which blocks of sets the listed words are said, in one more reading, and return each subset's table.

    Returns
    -------
    list of DataFrame in `WORD_ASSOCIATIONS`
        `stereotype` is null.
    """
    words = sorted({word for subset in subsets for word in subset.listed["word"].drop_nulls()})
    found = count_occurrences(corpus.by_cell(), words, cells=corpus.parts.height * BLOCKS)
    return [_table(subset, words, found, settings) for subset in subsets]


def _table(subset: Subset, words: list[str], found: Occurrences, settings: LanguageSettings) -> pl.DataFrame:
    blocks = min(BLOCKS, subset.sets)
    errors = _errors(subset, words, found, blocks, settings.log_base)
    table = subset.listed.join(errors, on=["group", "word"], how="left", maintain_order="left")
    association, error, degrees = (table[name].to_numpy() for name in ("association", "error", "degrees"))
    half = stdtrit(degrees, (1 + settings.confidence) / 2) * error
    p = 2 * stdtr(degrees, -np.abs(association) / error)
    tested = np.isfinite(p)
    # What was asked about and is not listed counts as found equal: q is then never too small.
    unlisted = np.ones(max(0, sum(subset.candidates.values()) - int(tested.sum())))
    q = np.full(len(p), np.nan)
    q[tested] = q_values(np.concatenate([p[tested], unlisted]))[: int(tested.sum())]
    few = few_sets(subset.sets)
    alone = pl.when(pl.col("word").is_not_null() & pl.col("ci_low").is_nan()).then(pl.lit(ONE_BLOCK))
    whose = subset.parts.select("dataset", "attribute", "group")
    return (
        table.with_columns(ci_low=association - half, ci_high=association + half, p=p, q=q)
        .with_columns(
            reason=pl.concat_str("reason", alone, pl.lit(few, pl.String), separator="; ", ignore_nulls=True),
            stereotype=pl.lit(None, pl.Boolean),
        )
        .with_columns(reason=pl.col("reason").replace("", None))
        .join(whose, on="group", maintain_order="left")
        .select(list(WORD_ASSOCIATIONS))
        .cast(pl.Schema(WORD_ASSOCIATIONS))
    )


def _errors(
    subset: Subset, words: list[str], found: Occurrences, blocks: int, log_base: float
) -> pl.DataFrame:
    """Return `group`, `word`, `error`, `degrees`, `texts` of every group and every word that is listed of any."""
    names = subset.listed["word"].drop_nulls().unique().sort()
    groups = subset.parts["group"]
    cells = subset.parts["part"].to_numpy()[:, None] * BLOCKS + np.arange(blocks)
    columns = np.searchsorted(words, names.to_numpy()) if len(names) else np.zeros(0, dtype=np.int64)
    times, texts = (counts[cells[:, :, None], columns] for counts in (found.times, found.texts))
    errors = association_errors(times, found.words[cells], log_base=log_base)
    return pl.DataFrame(
        {
            "group": np.repeat(groups.to_numpy(), len(names)),
            "word": np.tile(names.to_numpy(), len(groups)),
            "error": errors.error.ravel(),
            # Without a degree of freedom there is no error either.
            "degrees": np.tile(np.maximum(errors.degrees, 1), len(groups)),
            "texts": texts.sum(axis=1).ravel(),
        },
        schema={
            "group": pl.String,
            "word": pl.String,
            "error": pl.Float64,
            "degrees": pl.Int64,
            "texts": pl.Int64,
        },
    )
