"""Word counts by group: Polars, partition by partition, against scikit-learn and pandas. Each in a process of its own,
so that its peak memory is its own."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.statistics.contest import Peer, Row, timed
from benchmarks.statistics.memory import in_a_process, peak_mib
from plumbline.language.tokens import count_words, text_batches

TEXTS, WORDS_OF_A_TEXT, PARTITIONS = 50_000, 100, 5
VOCABULARY, GROUPS = 18_000, 14
PATTERN = r"[a-z]+(?:[-'][a-z]+)*"
"""The same words in ASCII."""
REACHED = {"scikit-learn": 4.7, "pandas": 26}
MEMORY_REACHED = 15
REPEATS = {"polars": 3, "scikit-learn": 2, "pandas": 1}


def run() -> list[Row]:
    """Return the row of times, and print memory beside it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_texts(folder)
        results = {side: in_a_process(__name__, side, folder) for side in SIDES}
        counts = {side: pl.read_parquet(folder / f"{side}.counts") for side in SIDES}
    ours = results["polars"]
    peers = []
    for side, name in (("scikit-learn", "scikit-learn's CountVectorizer"), ("pandas", "pandas, findall and explode")):
        same = counts["polars"].equals(counts[side])
        said = f"{counts[side].height:,} counts, all equal" if same else "counts differ"
        memory = f"; memory {results[side]['mib']:,.0f} MiB, {results[side]['mib'] / ours['mib']:.1f}x ours"
        if side == "pandas":
            verdict = "PASS" if results[side]["mib"] >= MEMORY_REACHED / 2 * ours["mib"] else "MISS"
            memory += f"  bar {MEMORY_REACHED / 2:.4g}x {verdict}"
        peers.append(Peer(name, results[side]["seconds"], same, said + memory, REACHED[side]))
    title = f"Word counts, {TEXTS:,} texts of {WORDS_OF_A_TEXT} words in {PARTITIONS} files, {GROUPS} groups"
    return [Row(f"{title}, {ours['mib']:,.0f} MiB", ours["seconds"], peers)]


def write_texts(folder: Path) -> None:
    """Write Parquet files of sentences whose words are as unequally frequent as in English (Zipf)."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfw"))
    words = np.array(
        [
            f"{''.join(rng.choice(letters, rng.integers(1, 9)))}{letters[i % 16]}{letters[i // 16 % 16]}"
            for i in range(VOCABULARY)
        ],
        dtype=object,
    )
    ends = np.array(
        [f"{word}{end}" for word, end in zip(words, np.resize([".", ",", "", ""], VOCABULARY))], dtype=object
    )
    shares = 1 / np.arange(1, VOCABULARY + 1)
    rows = TEXTS // PARTITIONS
    for part in range(PARTITIONS):
        drawn = ends[rng.choice(VOCABULARY, size=(rows, WORDS_OF_A_TEXT), p=shares / shares.sum())]
        texts = [" ".join(row).capitalize() for row in drawn]
        groups = [f"group {g}" for g in rng.integers(0, GROUPS, rows)]
        pl.DataFrame({"group": groups, "text": texts}).write_parquet(folder / f"{part}.parquet")


def by_polars(files: list[Path]) -> pl.DataFrame:
    """Count with this project."""
    return count_words(batch for path in files for batch in text_batches(pl.scan_parquet(path), "group"))


def by_scikit_learn(files: list[Path]) -> pl.DataFrame:
    """Count with a document-term matrix, and add its rows up by group."""
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import CountVectorizer

    groups = pl.concat([pl.read_parquet(path, columns=["group"]) for path in files])["group"]
    vectoriser = CountVectorizer(token_pattern=PATTERN)
    matrix = vectoriser.fit_transform(text for path in files for text in pl.read_parquet(path)["text"])
    names, codes = np.unique(groups.to_numpy(), return_inverse=True)
    members = csr_array((np.ones(len(codes), dtype=np.int64), (codes, np.arange(len(codes)))))
    sums = (members @ matrix).toarray()
    group, word = np.nonzero(sums)
    vocabulary = vectoriser.get_feature_names_out()
    return pl.DataFrame({"group": names[group], "word": vocabulary[word], "count": sums[group, word]})


def by_pandas(files: list[Path]) -> pl.DataFrame:
    """Count with a list of words a text, exploded."""
    import pandas as pd

    frame = pd.concat([pd.read_parquet(path) for path in files])
    words = frame.assign(word=frame["text"].str.lower().str.findall(PATTERN)).explode("word")
    counted = words.groupby(["group", "word"]).size().rename("count").reset_index()
    return pl.from_pandas(counted)


SIDES: dict[str, Callable[[list[Path]], pl.DataFrame]] = {
    "polars": by_polars,
    "scikit-learn": by_scikit_learn,
    "pandas": by_pandas,
}


def main(side: str, folder: Path) -> None:
    """Count a few texts to warm up, then all; print seconds and the memory added, and leave the counts behind."""
    files = sorted(folder.glob("*.parquet"))
    few = folder / f"{side}.few"
    pl.read_parquet(files[0]).head(50).write_parquet(few)
    SIDES[side]([few])
    before = peak_mib()
    seconds, counts = timed(lambda: SIDES[side](files), repeats=REPEATS[side])
    mib = peak_mib() - before
    plain = {"group": pl.String, "word": pl.String, "count": pl.Int64}
    counts.cast(plain).sort("group", "word").write_parquet(folder / f"{side}.counts")
    print(json.dumps({"seconds": seconds, "mib": mib}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
