"""The usual tools for the same counts."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

PATTERN = r"[a-z]+(?:[-'][a-z]+)*"
"""The words of `plumbline.language.tokens.words_of` in ASCII."""

ANSWERS_AT_ONCE = 20_000


def by_scikit_learn(parts: Sequence[Path]) -> pl.DataFrame:
    """Make a document-term matrix, and add its rows up by group."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import CountVectorizer

    vectoriser = CountVectorizer(token_pattern=PATTERN)
    texts = (text for path in parts for text in pl.read_parquet(path, columns=["text"])["text"])
    matrix = vectoriser.fit_transform(texts)
    groups = pl.concat([pl.read_parquet(path, columns=["group"]) for path in parts])["group"]
    names, codes = np.unique(groups.to_numpy(), return_inverse=True)
    members = csr_array((np.ones(len(codes), dtype=np.int64), (codes, np.arange(len(codes)))))
    sums = (members @ matrix).toarray()
    group, word = np.nonzero(sums)
    return pl.DataFrame(
        {"group": names[group], "word": vectoriser.get_feature_names_out()[word], "count": sums[group, word]},
        schema={"group": pl.String, "word": pl.String, "count": pl.Int64},
    )


def by_pandas(parts: Sequence[Path]) -> pl.DataFrame:
    """Explode lists of words, count pairs of group and word, and add up the counts of batches."""
    import pandas as pd

    total = None
    for path in parts:
        frame = pd.read_parquet(path, columns=["group", "text"])
        for start in range(0, len(frame), ANSWERS_AT_ONCE):
            batch = frame.iloc[start : start + ANSWERS_AT_ONCE]
            words = batch.assign(word=batch["text"].str.lower().str.findall(PATTERN)).explode("word")
            counts = words.groupby(["group", "word"]).size()
            total = counts if total is None else total.add(counts, fill_value=0)
    assert total is not None
    table = total.astype("int64").rename("count").reset_index()
    return pl.DataFrame({name: table[name].to_numpy() for name in ("group", "word", "count")})
