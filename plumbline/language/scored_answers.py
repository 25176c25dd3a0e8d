"""The answers to one question with their scores, in files of whole sets: memory does not grow with rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from plumbline.catalog.schema import NO_INSTRUCTION, Row
from plumbline.language.answers import NAME, UNIT, answer_row
from plumbline.language.cell import LanguageCell
from plumbline.language.refusals import REFUSED
from plumbline.language.tokens import text_batches

OF_SCORES = ("dataset", "attribute", "scorer", "scored")
"""Names the scores that are compared with each other."""
_IN_ORDER = ("unit", "group", "seed", "answer")


@dataclass(frozen=True)
class ScoredAnswers:
    """The answers to one question, and their scores; made by `plumbline.language.scored_answers.every_question`.

    Attributes
    ----------
    model, prompt, instruction : str
    blocks : tuple of LazyFrame
        Over files. A set is in one block with all its images and seeds. One row an answer, scorer and scored attribute,
        with names as `NAME`: `answer` (tells answers apart), `dataset, subset, attribute, group, occupation, set_id,
        seed, unit, refused, scorer, scored, score`. Only of images whose group is known. Scores that are nan are left
        out; an answer without any has one row with null for scorer, attribute and score.
    """

    model: str
    prompt: str
    instruction: str
    blocks: tuple[pl.LazyFrame, ...]

    @property
    def columns(self) -> Row:
        """Return the columns common to all rows about these answers; the instruction is null for none."""
        instruction = None if self.instruction == NO_INSTRUCTION else self.instruction
        return {"prompt": self.prompt, "instruction": instruction}

    def row(self, **columns: object) -> Row:
        """Return a metric row about these answers: the common columns and further ones."""
        return answer_row(self.model, **self.columns, **columns)

    @cached_property
    def kinds(self) -> pl.DataFrame:
        """Return the `OF_SCORES` that there are."""
        of_blocks = [block.select(OF_SCORES).drop_nulls().unique().collect(engine="streaming") for block in self.blocks]
        return pl.concat(of_blocks).unique() if of_blocks else pl.DataFrame(schema=dict.fromkeys(OF_SCORES, NAME))

    @cached_property
    def any_refused(self) -> bool:
        """Return whether an answer is a refusal."""
        return any(
            bool(block.select(pl.col("refused").any()).collect(engine="streaming").item()) for block in self.blocks
        )

    def scores(self, *columns: str, **where: str) -> Iterator[pl.DataFrame]:
        """Yield some columns of the rows with a score, block by block; `where` gives names that rows have."""
        for block in self.blocks:
            chosen = [pl.col(name) == value for name, value in where.items()]
            yield block.filter(pl.col("score").is_not_null(), *chosen).select(columns).collect()

    def scores_of(self, names: tuple[str, ...], *columns: str) -> pl.DataFrame:
        """Return some columns of all scores of one of `OF_SCORES`: what a quantile or a rank needs at once.

        Sums of floats depend on their order in the last digits: it is that of names, whatever the files and blocks.
        """
        wanted = dict.fromkeys((*_IN_ORDER, *columns))
        of_blocks = list(self.scores(*wanted, **dict(zip(OF_SCORES, names))))
        return pl.concat(of_blocks).sort(_IN_ORDER).select(columns)


# --- Answers joined with their scores on disk, in blocks of whole sets.

BLOCK_ANSWERS = 100_000
"""About how many answers, with all their scores, are in memory at once; changes no result."""

_ROWS_OF_A_FILE = 16_000
"""A file is in memory until it is full, and there is one open for every block."""
_WHOSE = ("dataset", "subset", "attribute", "group", "occupation", "set_id")
_Asked = dict[tuple[str, str], int]


@contextmanager
def every_question(
    cell: LanguageCell, *, only: Collection[tuple[str, str]] | None = None
) -> Iterator[list[ScoredAnswers]]:
    """Give the scored answers to each question, in order; those without any score are passed over.

    Answers and scores lie in any order, each of any number. Both are read once, and dealt to files by the digest of
    their `row_key`; those of one digest are joined, and dealt to files by question and set. The files, some 55 bytes a
    score, are in the system's temporary folder (`TMPDIR`), and gone in the end.

    Parameters
    ----------
    cell : LanguageCell
    only : collection of (str, str), optional
        Prompts and instructions; all that were asked by default.
    """
    known = cell.generations.filter(
        pl.col("attribute").is_not_null(),
        pl.col("group").is_not_null(),
        pl.col("prompt").is_not_null(),
        pl.col("instruction").is_not_null(),
    )
    counted = known.group_by("prompt", "instruction").len().sort("prompt", "instruction")
    answers_of: _Asked = {
        (prompt, instruction): answers
        for prompt, instruction, answers in counted.collect(engine="streaming").iter_rows()
        if only is None or (prompt, instruction) in only
    }
    with TemporaryDirectory(prefix="plumbline-scores-") as name:
        blocks = {question: -(-answers // BLOCK_ANSWERS) for question, answers in answers_of.items()}
        dealt = -(-sum(answers_of.values()) // BLOCK_ANSWERS)
        if answers_of:
            _deal(cell.scores, known, blocks, dealt, Path(name))
        scored = _questions(cell.model, blocks, Path(name))
        yield [each for each in scored if not each.kinds.is_empty()]


def _deal(scores: pl.LazyFrame, known: pl.LazyFrame, blocks: _Asked, dealt: int, folder: Path) -> None:
    """Write `scored/{part}/block={block}` for each of the parts that rows are dealt to by their digest."""
    part = (pl.col("row_key").hash() % dealt).alias("part")
    _dealt(_described(known, blocks, folder / "told").with_columns(part), folder / "answers", by="part")
    usable = scores.filter(pl.col("score").is_not_null() & pl.col("score").is_not_nan())
    of_scores = usable.select(
        "row_key", "score", part, scorer=pl.col("scorer").cast(NAME), scored=pl.col("attribute").cast(NAME)
    )
    _dealt(of_scores, folder / "scores", by="part")
    for number in range(dealt):
        answers = _written(folder / "answers" / f"part={number}")
        written = _written(folder / "scores" / f"part={number}")
        if answers is not None:
            scored = of_scores.drop("part").clear() if written is None else written
            both = answers.join(scored, on="row_key", how="left").with_columns(answer=pl.col("row_key").hash())
            _dealt(both.drop("row_key"), folder / "scored" / str(number), by="block")


def _described(known: pl.LazyFrame, blocks: _Asked, folder: Path) -> pl.LazyFrame:
    """Write what is needed of the answers, without their texts, and return it; `block` is that of the answer's set."""
    block_of = pl.DataFrame(
        [(*question, count) for question, count in blocks.items()],
        schema={"prompt": pl.String, "instruction": pl.String, "count": pl.UInt64},
        orient="row",
    ).with_columns(first=pl.col("count").cum_sum() - pl.col("count"))
    kept = ("row_key", "prompt", "instruction", "seed", "image_id", "finish_reason", *_WHOSE)
    folder.mkdir()
    for number, batch in enumerate(text_batches(known, *kept)):
        described = batch.join(block_of, on=["prompt", "instruction"]).with_columns(unit=UNIT, refused=REFUSED)
        described.select(
            "row_key",
            "seed",
            "refused",
            *(pl.col(name).cast(NAME) for name in (*_WHOSE, "unit")),
            block=pl.col("first") + pl.col("unit").hash() % pl.col("count"),
        ).write_parquet(folder / f"{number:06}.parquet", compression="lz4")
    return _rows_of(folder.glob("*.parquet"))


def _rows_of(files: Iterable[Path]) -> pl.LazyFrame:
    """Return the rows of some files, whatever signs their names hold."""
    return pl.scan_parquet(sorted(files), glob=False)


def _dealt(rows: pl.LazyFrame, folder: Path, *, by: str) -> None:
    """Partition rows into folders by a column."""
    files = pl.PartitionBy(folder, key=by, include_key=False, max_rows_per_file=_ROWS_OF_A_FILE)
    rows.sink_parquet(files, compression="lz4", statistics=False, mkdir=True)


def _written(folder: Path) -> pl.LazyFrame | None:
    """Return the rows of a folder; None where no row was dealt to it."""
    return _rows_of(folder.glob("*.parquet")) if folder.exists() else None


def _questions(model: str, blocks: _Asked, folder: Path) -> Iterator[ScoredAnswers]:
    first = 0
    for (prompt, instruction), count in blocks.items():
        files = [sorted(folder.glob(f"scored/*/block={number}/*.parquet")) for number in range(first, first + count)]
        first += count
        yield ScoredAnswers(model, prompt, instruction, tuple(_rows_of(parts) for parts in files if parts))
