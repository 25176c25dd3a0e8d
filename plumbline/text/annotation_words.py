"""The words on the sheet for the judge: those most associated with a few groups."""

from __future__ import annotations

import polars as pl

from plumbline.statistics.seeds import generator
from plumbline.text.annotation_cells import Drawn, cells_to_fill
from plumbline.text.annotations import JUDGE, SHEET_COLUMNS, word_id

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
        pl.Series("text_id", ids, dtype=pl.String),
        sheet=pl.lit(JUDGE),
        group=pl.col("group").str.replace_all("_", " "),
    )
    return Drawn(cells_to_fill(rows.rename({"word": "text"})).select(SHEET_COLUMNS), tuple(shortfalls))


def _chosen(sizes: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the groups to judge and their number of words."""
    enough = sizes.filter(pl.col("words") >= WORDS)
    drawn = generator(seed, "annotation", JUDGE).permutation(enough.height)[:GROUPS]
    rest = sizes.filter(pl.col("words") < WORDS).sort("words", *_GROUP, descending=[True, False, False])
    return pl.concat([enough[sorted(drawn.tolist())], rest.head(GROUPS - len(drawn))])
