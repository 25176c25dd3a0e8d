"""Texts of any number, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from plumbline.errors import MetricError

BATCH_ROWS = 20_000
"""Texts held at once: of 500 words each, some 200 MB."""

Texts = pl.DataFrame | pl.LazyFrame


def text_batches(
    texts: Texts,
    *,
    text: str = "text",
    keep: Mapping[str, pl.Expr],
    batch_rows: int = BATCH_ROWS,
    where: str = "the texts",
) -> Iterator[pl.DataFrame]:
    """Yield the texts and what else is wanted of their rows, in frames of at most `batch_rows` rows.

    Parameters
    ----------
    texts : DataFrame or LazyFrame
        One row a text. A LazyFrame over files is never in memory as a whole.
    text : str
        Column of String with the text; it is called `text` in what is given.
    keep : mapping of str to expression
        Name -> further column. A row in which the first of them is null is left out.
    where : str
        What the frame is, for messages.

    Yields
    ------
    DataFrame with the columns of `keep`, then `text`
        In no particular order.

    Raises
    ------
    MetricError
        If it is no Polars frame, a column is missing, the text is not text, or `batch_rows` is below 1.
    """
    if batch_rows < 1:
        raise MetricError("batch_rows must be at least 1", found=batch_rows)
    if not isinstance(texts, Texts):
        raise MetricError(
            "a partition of texts must be a Polars frame", where=where, found=type(texts).__name__
        )
    lazy = texts.lazy()
    schema = lazy.collect_schema()
    needed = {name for each in keep.values() for name in each.meta.root_names()} | {text}
    if missing := needed - set(schema):
        raise MetricError(
            "a partition of texts lacks a column",
            where=where,
            found=", ".join(schema),
            expected=", ".join(sorted(missing)),
        )
    # A column of nothing but nulls has no type of its own.
    if schema[text] not in (pl.String, pl.Null):
        raise MetricError("the column of texts must be text", where=f"{where}, {text}", found=schema[text])
    chosen = lazy.select(**keep, text=pl.col(text).cast(pl.String))
    kept = chosen.filter(pl.col(next(iter(keep))).is_not_null()) if keep else chosen
    if isinstance(texts, pl.DataFrame):
        yield from kept.collect().iter_slices(batch_rows)
        return
    for batch in kept.collect_batches(chunk_size=batch_rows, maintain_order=False):
        yield from batch.iter_slices(batch_rows)
