"""What is timed, each in a process of its own: `python -m benchmarks.language.tasks TASK FOLDER PARTS`."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks.language.peers import by_pandas, by_scikit_learn
from benchmarks.statistics.contest import timed
from benchmarks.statistics.memory import peak_mib
from plumbline.language.cell import LanguageCell, LanguageSettings
from plumbline.language.max_toxicity import compute_max_toxicity
from plumbline.language.refusals import refusals_and_lengths_result
from plumbline.language.tokens import count_words, text_batches
from plumbline.language.words import words_result

FEW_RESAMPLES = 20


class Done(NamedTuple):
    """What a task says of itself: answers read, and a number that another way of doing it must reach too."""

    rows: int
    check: float
    counts: pl.DataFrame | None = None


def word_counts(parts: Sequence[Path]) -> Done:
    """Count every word of every group."""
    counts = count_words(text_batches(pl.scan_parquet(parts), "group"))
    return Done(_rows(parts), counts["count"].sum(), counts)


def associations(parts: Sequence[Path]) -> Done:
    """Compute the whole words family: count all, compare groups, find the listed words in blocks of sets."""
    # Words are drawn alike for all groups: a low threshold makes lists as long as real ones.
    settings = LanguageSettings(association_threshold=0.02)
    table = words_result(_cell(parts), settings=settings).tables["word_associations"]
    return Done(_rows(parts), table.height)


def max_toxicity(parts: Sequence[Path]) -> Done:
    """Compute the whole max_toxicity family, with as few resamples as can be: their time does not follow the rows."""
    settings = LanguageSettings(resamples=FEW_RESAMPLES, permutations=FEW_RESAMPLES)
    return Done(_rows(parts), compute_max_toxicity(_cell(parts), settings=settings).rows.height)


def lengths(parts: Sequence[Path]) -> Done:
    """Compute the whole refusals_and_lengths family: a number an answer is kept, of one question after the other."""
    settings = LanguageSettings(resamples=FEW_RESAMPLES, permutations=FEW_RESAMPLES)
    return Done(_rows(parts), refusals_and_lengths_result(_cell(parts), settings=settings).rows.height)


def scikit_learn(parts: Sequence[Path]) -> Done:
    """Count every word of every group by a document-term matrix."""
    counts = by_scikit_learn(parts)
    return Done(_rows(parts), counts["count"].sum(), counts)


def pandas(parts: Sequence[Path]) -> Done:
    """Count every word of every group in pandas, some answers at a time: all at once would not fit."""
    counts = by_pandas(parts)
    return Done(_rows(parts), counts["count"].sum(), counts)


TASKS: dict[str, Callable[[Sequence[Path]], Done]] = {
    task.__name__: task for task in (word_counts, associations, max_toxicity, lengths, scikit_learn, pandas)
}


def _rows(parts: Sequence[Path]) -> int:
    return int(pl.scan_parquet(parts).select(pl.len()).collect().item())


def _cell(parts: Sequence[Path]) -> LanguageCell:
    """Return the cell of some parts; scores and people are beside them."""
    scores, people = (
        [path.with_name(path.name.replace("generations", name)) for path in parts] for name in ("scores", "people")
    )
    expected = pl.read_parquet(people)
    return LanguageCell("model", pl.scan_parquet(parts), pl.scan_parquet(scores), expected, {"offline": True})


def main(task: str, folder: str, parts: str) -> None:
    """Run one task over the first parts of the corpus; print seconds, peak memory, rows and its check."""
    files = sorted(Path(folder).glob("generations-*.parquet"))[: int(parts)]
    seconds, done = timed(lambda: TASKS[task](files))
    if done.counts is not None:
        done.counts.sort("group", "word").write_parquet(Path(folder) / f"{task}-{parts}.counts")
    print(json.dumps({"seconds": seconds, "mib": peak_mib(), "rows": done.rows, "check": float(done.check)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
