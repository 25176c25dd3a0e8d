"""Word lists that papers printed, beside those of an audit: how far they overlap, and which words are absent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from plumbline.catalog.published import published_words
from plumbline.catalog.studies import recognise
from plumbline.errors import MetricError
from plumbline.statistics.rankings import rank_biased_overlap

WORD_LISTS: dict[str, pl.DataType] = {
    **dict.fromkeys(("paper", "table", "row", "column", "model", "dataset", "attribute", "group"), pl.String()),
    "printed": pl.Int64(),
    "measured": pl.Int64(),
    "overlap": pl.Float64(),
    "rank_biased_overlap": pl.Float64(),
    "associated": pl.Int64(),
    "absent": pl.List(pl.String),
    "note": pl.String(),
}
"""One row a printed list and a measured one of the same checkpoint and group.

`printed` words, and `measured` ones: those that the judge named, the most associated first. `overlap`: at k, the length
of the printed list: the share of its words among the first k measured. `rank_biased_overlap`: of both whole lists, in
the order in which they stand (Webber et al. 2010, extrapolated, p = 0.9); in [0, 1] like the other. `associated`: how
many printed words are associated with the group here, named by a judge or not; `absent`: those that the judge did not
name, or that are not associated. Without a judge the overlaps are null, and the `note` says so.
"""

_NO_JUDGE = "no judge named stereotypes: compared with the associated words alone"


def compare_word_lists(
    words: pl.DataFrame, *, addresses: Mapping[str, str], datasets: Collection[str], printed: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Set the words that an audit found beside those that the papers printed.

    Parameters
    ----------
    words : DataFrame
        `plumbline.language.words.WORD_ASSOCIATIONS` with a first column `model`.
    addresses : mapping of str to str
        Model -> address; those of no study's checkpoint are passed over.
    datasets : collection of str
        Ids of the datasets that are the real SocialCounterfactuals.
    printed : DataFrame, optional
        In `WORDS_SCHEMA`; by default every published list.

    Returns
    -------
    DataFrame
        In `WORD_LISTS`, in the order of the papers; empty where nothing is covered.
    """
    known = {model: recognised.id for model, address in addresses.items() if (recognised := recognise(address))}
    lists = pl.DataFrame(schema=WORD_LISTS)
    measured = words.filter(pl.col("model").is_in(list(known)), pl.col("dataset").is_in(list(datasets)))
    if measured.is_empty():
        return lists
    checkpoint = pl.col("model").replace_strict(known, return_dtype=pl.String)
    measured = measured.with_columns(checkpoint=checkpoint)
    cells = ["paper", "table", "row", "column", "checkpoint", "attribute", "group"]
    of_papers = (published_words() if printed is None else printed).drop_nulls("checkpoint")
    rows = []
    for key, of_cell in of_papers.group_by(cells, maintain_order=True):
        named = dict(zip(cells, key))
        mine = measured.filter(pl.col(name) == named[name] for name in ("checkpoint", "attribute", "group"))
        words_printed = of_cell.sort("position")["word"].to_list()
        for (model, dataset), listed in mine.group_by("model", "dataset", maintain_order=True):
            place = [named[name] for name in cells if name != "checkpoint"]
            rows.append([*place[:4], model, dataset, *place[4:], *_compared(words_printed, listed)])
    return pl.concat([lists, pl.DataFrame(rows, schema=WORD_LISTS, orient="row")])


def _compared(printed: list[str], found: pl.DataFrame) -> list[object]:
    """Return the columns of one pair of lists."""
    ordered = found.drop_nulls("word").sort(["association", "word"], descending=[True, False])
    associated = ordered["word"].to_list()
    judged = ordered["stereotype"].null_count() < ordered.height
    named = ordered.filter("stereotype")["word"].to_list() if judged else associated
    here = set(named)
    overlaps: list[float | None] = [None, None]
    if judged:
        overlaps = [overlap_at(printed, named, k=len(printed)), rank_biased_overlap(printed, named)]
    absent = [word for word in printed if word not in here]
    common = len(set(printed) & set(associated))
    return [len(printed), len(named), *overlaps, common, absent, None if judged else _NO_JUDGE]


def overlap_at(first: Sequence[str], second: Sequence[str], *, k: int) -> float:
    """Return the share of the first k words of a list that are among the first k of another.

    Raises
    ------
    MetricError
        If k is below 1.
    """
    if k < 1:
        raise MetricError("an overlap is of the first words of two lists", found=f"k = {k}", expected="at least 1")
    return len(set(first[:k]) & set(second[:k])) / k
