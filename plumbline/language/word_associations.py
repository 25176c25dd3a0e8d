"""Which words are said more of one group than of the others: differences of pointwise mutual information.

Source: Howard et al., "Uncovering Bias in Large Vision-Language Models at Scale with Counterfactuals", appendix D.1,
equations 5 to 7.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from plumbline.errors import MetricError

HALF_REASON = "never said of the other groups: counted there as one half"
EMPTY_REASON = "undefined: no words of this group"
ALONE_REASON = "undefined: no words of any other group"

_SCHEMA: dict[str, type[pl.DataType]] = {
    "group": pl.String,
    "word": pl.String,
    "association": pl.Float64,
    "count": pl.Int64,
    "n": pl.Int64,
    "count_others": pl.Int64,
    "n_others": pl.Int64,
    "reason": pl.String,
}


@dataclass(frozen=True)
class MatrixAssociations:
    """Word-group pairs that passed, see `associations_of_matrix`.

    Attributes
    ----------
    group, word : (k,) int64
        Row and column of the matrix.
    association : (k,) float64
    halved : (k,) bool
        Whether the word is never said of the other groups, and was counted there as one half.
    """

    group: NDArray[np.int64]
    word: NDArray[np.int64]
    association: NDArray[np.float64]
    halved: NDArray[np.bool_]


def word_associations(
    counts: pl.DataFrame | pl.LazyFrame,
    *,
    min_count: int = 10,
    threshold: float = 1.0,
    log_base: float = 2,
    stop_words: Collection[str] = (),
) -> pl.DataFrame:
    """Return the words that each group's texts use more than the texts of all other groups.

    association(w, g) = PMI(w, g) - PMI(w, not g) = log(f(w, g) / N_g) - log(f(w, not g) / N_not g), where f counts a
    word and N all words. 0: equally frequent; with base 2, 1: twice as frequent; below 0: rarer.

    Parameters
    ----------
    counts : frame with `group`, `word`, `count`
        As `count_words` gives it, stop words included: N are its sums. Rows of the same group and word are added. The
        other groups of the frame are "not g": give one subset and one model at a time.
    min_count : int
        Words said fewer times of a group are left out for it (the paper: 10; 3 for small samples).
    threshold : float
        Only associations strictly above it are kept; -inf keeps all.
    log_base : float
        Above 1. The threshold is in its units.
    stop_words : collection of str
        Left out of the result, and still counted in N.

    Returns
    -------
    DataFrame
        `group, word, association, count` f(w, g), `n` N_g, `count_others`, `n_others`, `reason`; by group, strongest
        first, then by word. A word that is never said of the others counts there as one half, and `reason` says so.
        A group of which nothing can be said, having no words or no others beside it, has one row: word null,
        association nan, and the reason.

    Raises
    ------
    MetricError
        If a column is missing, a group is null, a count is not a whole number from 0, a word with a count is null, or
        a parameter is out of range.
    """
    names, words, matrix = _dense(_checked(counts))
    found = associations_of_matrix(
        matrix,
        min_count=min_count,
        threshold=threshold,
        log_base=log_base,
        keep=~words.is_in(list(stop_words)).to_numpy() if stop_words else None,
    )
    rows = pl.concat([_rows(found, names, words, matrix), _undefined(names, matrix.sum(axis=1))])
    return rows.sort("group", "association", "word", descending=[False, True, False])


def associations_of_matrix(
    counts: ArrayLike,
    *,
    min_count: int = 10,
    threshold: float = 1.0,
    log_base: float = 2,
    keep: NDArray[np.bool_] | None = None,
) -> MatrixAssociations:
    """Return the associations above a threshold, of a dense matrix; `word_associations` says what they are.

    Parameters
    ----------
    counts : (g, w) int
        Times each group's texts say each word.
    keep : (w,) bool, optional
        The words to report; all count in N.

    Returns
    -------
    MatrixAssociations
        By group, then by word. Groups without words, or without others that have any, have none.

    Raises
    ------
    MetricError
        If the counts are not a matrix of whole numbers from 0, or a parameter is out of range.
    """
    matrix = np.asarray(counts)
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.integer) or (matrix < 0).any():
        raise MetricError(
            "word counts must be a matrix of whole numbers from 0",
            found=f"{matrix.dtype} {matrix.shape}",
            expected="(groups, words) int",
        )
    _check_parameters(min_count, threshold, log_base)
    n = matrix.sum(axis=1, dtype=np.int64)
    n_others = n.sum() - n
    frequent = matrix >= min_count
    frequent[n_others == 0] = False
    if keep is not None:
        frequent &= keep
    group, word = np.nonzero(frequent)
    count = matrix[group, word].astype(np.int64)
    others = matrix.sum(axis=0, dtype=np.int64)[word] - count
    # One logarithm of a ratio of products: whole numbers up to 2^53 are exact in them, so that a word said exactly
    # twice as often gets exactly 1 and is not above the threshold.
    ratio = (count * n_others[group].astype(np.float64)) / (np.maximum(others, 0.5) * n[group])
    association = np.log2(ratio) / np.log2(log_base)
    above = association > threshold
    return MatrixAssociations(group[above], word[above], association[above], others[above] == 0)


def _rows(
    found: MatrixAssociations, names: pl.Series, words: pl.Series, matrix: NDArray[np.int64]
) -> pl.DataFrame:
    """Return one row for each pair that passed."""
    count = matrix[found.group, found.word]
    n, total = matrix.sum(axis=1), matrix.sum(axis=0)
    return pl.DataFrame(
        {
            "group": names.gather(found.group),
            "word": words.gather(found.word),
            "association": found.association,
            "count": count,
            "n": n[found.group],
            "count_others": total[found.word] - count,
            "n_others": (n.sum() - n)[found.group],
            "reason": pl.Series(found.halved).replace_strict(
                {True: HALF_REASON, False: None}, return_dtype=pl.String
            ),
        },
        schema=_SCHEMA,
    )


def _check_parameters(min_count: int, threshold: float, log_base: float) -> None:
    valid = {
        "min_count": (min_count >= 1, min_count, "at least 1"),
        "threshold": (not np.isnan(threshold), threshold, "a number"),
        "log_base": (1 < log_base < np.inf, log_base, "above 1"),
    }
    for name, (right, found, expected) in valid.items():
        if not right:
            raise MetricError(
                "a parameter of word associations is out of range", where=name, found=found, expected=expected
            )


def _checked(counts: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Return `group, word, count` as String, String, Int64."""
    if not isinstance(counts, pl.DataFrame | pl.LazyFrame):
        raise MetricError("word counts must be a Polars frame", found=type(counts).__name__)
    frame = counts.lazy().collect()
    if missing := {"group", "word", "count"} - set(frame.columns):
        raise MetricError(
            "a frame of word counts lacks a column",
            found=", ".join(frame.columns),
            expected=", ".join(sorted(missing)),
        )
    numbers = frame["count"]
    if not numbers.dtype.is_numeric() or numbers.dtype.is_float() or numbers.dtype.is_decimal():
        raise MetricError("counts must be whole numbers", where="column count", found=numbers.dtype)
    frame = frame.select(pl.col("group", "word").cast(pl.String), pl.col("count").cast(pl.Int64))
    for refused, what in (
        (pl.col("group").is_null(), "a row of word counts has no group"),
        (pl.col("count").is_null() | (pl.col("count") < 0), "a count is not a whole number from 0"),
        (pl.col("word").is_null() & (pl.col("count") > 0), "a count belongs to no word"),
    ):
        bad = frame.with_row_index("row").filter(refused)
        if bad.height:
            raise MetricError(what, where=f"row {bad['row'][0]}", found=bad.drop("row").row(0))
    return frame


def _dense(frame: pl.DataFrame) -> tuple[pl.Series, pl.Series, NDArray[np.int64]]:
    """Return the group names, the words, and the (g, w) counts."""
    names, words = frame["group"].unique(), frame["word"].drop_nulls().unique()
    matrix = np.zeros((len(names), len(words)), dtype=np.int64)
    said = frame.filter(pl.col("word").is_not_null())
    position = (_positions(said["group"], names), _positions(said["word"], words))
    np.add.at(matrix, position, said["count"].to_numpy())
    return names, words, matrix


def _positions(values: pl.Series, distinct: pl.Series) -> NDArray[np.int64]:
    return values.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64).to_numpy()


def _undefined(names: pl.Series, n: NDArray[np.int64]) -> pl.DataFrame:
    """Return one row for each group of which nothing can be said."""
    rows = [
        {"group": name, "association": np.nan, "n": own, "n_others": others, "reason": reason}
        for name, own, others in zip(names, n.tolist(), (n.sum() - n).tolist())
        if (reason := EMPTY_REASON if own == 0 else ALONE_REASON if others == 0 else None)
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)


# --- How sure a word association is: its standard error over blocks of whole sets.


@dataclass(frozen=True)
class AssociationErrors:
    """How sure associations are.

    Attributes
    ----------
    error : (g, w) float64
        Standard errors, in the associations' logarithm. nan where a group never says the word, where fewer than two
        blocks hold it, or where there are no words of other groups.
    degrees : (w,) int64
        Degrees of freedom of each word: the blocks in which anyone says it, less one.
    """

    error: NDArray[np.float64]
    degrees: NDArray[np.int64]


def association_errors(times: ArrayLike, words: ArrayLike, *, log_base: float = 2) -> AssociationErrors:
    """Return the standard error of every word's association with every group.

    The association log(f_g / N_g) - log(f_o / N_o) is a smooth function of four sums over blocks b of independent
    sets, so its variance is that of the sum of its linear parts (Taylor linearisation of a ratio of clustered counts;
    Wolter 2007, Introduction to Variance Estimation, chapter 6), and never below that of independent counts:

        z_b = f_gb / f_g - N_gb / N_g - f_ob / f_o + N_ob / N_o
        variance = max(B / (B - 1) × Σ z_b², 1 / f_g + 1 / f_o) / ln(base)²

    A word that one text repeats, or that one scene calls for in every answer, is counted often but is in few blocks,
    and gets the wide error and the few degrees of freedom that it should; a test that takes every count as independent
    (such as Dunning's log-likelihood ratio) calls nearly all such words significant. The bound is for words of few
    blocks, whose shares of two groups may agree by chance. Only that whole sets are independent is assumed; groups may
    be related within a set in any way.

    Parameters
    ----------
    times : (g, b, w) int
        How often each group's texts say each word, by block of sets.
    words : (g, b) int
        All words of a group's texts, by block.
    log_base : float
        Of the associations.

    Returns
    -------
    AssociationErrors
        A word that others never say is counted there as one half, as in the association: its error has the own part
        of the variance and 1 / ½ = 2.

    Raises
    ------
    MetricError
        If the shapes disagree.
    """
    f, n = np.asarray(times), np.asarray(words)
    if f.ndim != 3 or n.shape != f.shape[:2]:
        raise MetricError(
            "counts and numbers of words must be of the same groups and blocks",
            found=f"{f.shape}, {n.shape}",
            expected="(g, b, w), (g, b)",
        )
    all_times, all_words = f.sum(axis=0), n.sum(axis=0)
    degrees = (all_times > 0).sum(axis=0) - 1
    found = np.full((f.shape[0], f.shape[2]), np.nan)
    for group in range(len(f)):
        n_others = all_words - n[group]
        if n_others.sum() > 0:
            found[group] = np.sqrt(_variance(f[group], n[group], all_times - f[group], n_others))
    found[:, degrees < 1] = np.nan
    return AssociationErrors(found / np.log(log_base), degrees.astype(np.int64))


def _variance(
    f: NDArray[np.int64], n: NDArray[np.int64], f_others: NDArray[np.int64], n_others: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return (w,) the variances of one group, of natural logarithms."""
    blocks, own_total, others_total = len(f), f.sum(axis=0), f_others.sum(axis=0)
    never = others_total == 0
    own = _shares(f) - _shares(n)[:, None]
    others = np.where(never, 0.0, _shares(f_others) - _shares(n_others)[:, None])
    of_counts = _inverse(own_total)
    clustered = blocks / max(blocks - 1, 1) * ((own - others) ** 2).sum(axis=0)
    return np.where(
        never, np.maximum(clustered, of_counts) + 2, np.maximum(clustered, of_counts + _inverse(others_total))
    )


def _inverse(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.divide(1.0, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each block's share of the sum over blocks, axis 0; nan where that is 0."""
    total = np.broadcast_to(counts.sum(axis=0), counts.shape)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)
