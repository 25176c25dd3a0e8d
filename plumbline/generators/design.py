"""From records and the entries of the audit file to slices of questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import polars as pl

from plumbline.catalog.prompts import SPOKEN, Articles, needs_occupation, render
from plumbline.catalog.schema import NO_INSTRUCTION
from plumbline.config.entries import BASE_LLM_PROMPT, GenerateEntry
from plumbline.datasets.filters import row_filter
from plumbline.datasets.records import Declaration
from plumbline.errors import ConfigError, suggestion
from plumbline.generators.backend import Asked, Decoding, Question, Subject, row_key
from plumbline.statistics.groups import attribute_groups

FILTER = "generation"
"""Under this name a dataset's declaration says which rows are asked about, and in whose words."""

WHOLE = "all"
"""The subset of a dataset that has none."""

_PAIRS = ("race_gender", "physical_gender", "physical_race")


@dataclass(frozen=True)
class Slice:
    """A part of a dataset that is generated in one run: a subset, cut between sets where it is large.

    Attributes
    ----------
    number : int or None
        Of the part; None where the subset is one slice.
    """

    dataset: str
    subset: str
    number: int | None = None

    @property
    def id(self) -> str:
        """Return the partition key, such as `counterfactuals.race_gender` or `counterfactuals.race_gender.007`."""
        return ".".join([self.dataset, self.subset, *([] if self.number is None else [f"{self.number:03d}"])])


def pictured(records: pl.DataFrame, declaration: Declaration) -> pl.DataFrame:
    """Return the records that prompts are about, with the attributes of the person pictured.

    Adds `subset`, `attribute` and `group` (which labels the groups join, and this image's: `race_gender`,
    `Black_woman`), `set_groups` (groups that a whole set of this subset has, null without sets and where most show one
    group alone, such as the pictures of a person), `set_rank` (1, 2, ...: the order in which sets of its subset and
    occupation are taken where not all are asked about) and `described` (in words, for a model without eyes: `Black
    female chef`).

    Parameters
    ----------
    records : DataFrame
        Of `plumbline.datasets.records.RECORD_SCHEMA`. Images of a cross of race and gender that is too small to be
        shown are left out.

    Raises
    ------
    ConfigError
        If the dataset says of nobody who is pictured.
    """
    chosen = row_filter(declaration.filter_for(FILTER))
    kept = chosen.relabelled(records.filter(chosen(records)))
    subset = pl.when(pl.col("split").is_in(_PAIRS)).then("split").otherwise(pl.lit(WHOLE))
    frame = kept.with_columns(subset.alias("subset"))
    attribute = pl.when(pl.col("subset") != WHOLE).then("subset").otherwise(pl.lit(_default_pair(frame)))
    frame = frame.with_columns(attribute.alias("attribute"))
    frame = frame.with_columns(
        _of_attribute(lambda columns: pl.concat_str(columns, separator="_")).alias("group"),
        _of_attribute(_described).alias("described"),
    )
    if "gender_race" in frame.columns:  # which of its groups are shown: of another no answer is asked for
        frame = frame.filter((pl.col("attribute") != "race_gender") | pl.col("gender_race").is_not_null())
    of_set = pl.col("group").n_unique().over("subset", "set_id").filter(pl.col("set_id").is_not_null())
    return _ranked(frame).with_columns(
        pl.when(pl.col("set_id").is_not_null(), (of_set > 1).mean() >= 0.5)
        .then(pl.col("group").n_unique().over("subset"))
        .cast(pl.Int64)
        .alias("set_groups")
    )


class ComparedBy(NamedTuple):
    """By which attributes of a dataset answers about it are compared, and by which they are not."""

    compared: tuple[str, ...]
    others: tuple[str, ...]


def compared_by(records: pl.DataFrame, declaration: Declaration) -> ComparedBy:
    """Return by which attributes answers about a dataset are compared.

    A cross, such as `race_gender`, is one: answers are then compared by its groups, and by none of its parts alone.

    Raises
    ------
    ConfigError
        As `pictured` does.
    """
    compared = pictured(records, declaration)["attribute"].unique(maintain_order=True).to_list()
    known = {part for attribute in compared for part in attribute.split("_")}
    names = [each.attribute for each in attribute_groups(records)]
    known |= {f"{one}_{other}" for one in names for other in names}
    return ComparedBy(tuple(compared), tuple(name for name in names if name not in known))


def _ranked(frame: pl.DataFrame) -> pl.DataFrame:
    """Add `set_rank`, by the hash of the set's id: the same in every run and in any order of the records."""
    unit = pl.coalesce("set_id", "image_id")
    sets = frame.select("subset", "occupation", unit.alias("set")).unique()
    order = pl.col("set").map_elements(lambda name: sha256(name.encode()).hexdigest(), pl.String)
    ranked = sets.with_columns(order.rank("ordinal").over("subset", "occupation").cast(pl.Int64).alias("set_rank"))
    keys = ["subset", "occupation", "set"]
    joined = frame.with_columns(unit.alias("set")).join(
        ranked, on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    return joined.drop("set")


def _default_pair(frame: pl.DataFrame) -> str:
    """Return the pair, or the single label, that a dataset without such subsets has for every image."""
    for pair in (*_PAIRS, "race", "gender"):
        columns = pair.split("_")
        if frame.height and all(frame[column].null_count() == 0 for column in columns):
            return pair
    if frame.height and (frame["subset"] != WHOLE).all():
        return WHOLE
    lacking = " and ".join(f"{frame[column].null_count():,} without {column}" for column in ("race", "gender"))
    raise ConfigError(
        "generative models cannot be asked about this dataset: it does not say of every image who is pictured",
        found=f"of {frame.height:,} images {lacking}",
        expected="race or gender of every image, or physical labels",
        hint="leave out the rows without one, or name all values in `map.values`; a group that is too small to be "
        "shown (`map.min_shown`) counts as none",
    )


def _of_attribute(expression_of: Callable[[list[str]], pl.Expr]) -> pl.Expr:
    """Return, for each row, the expression of the label columns that its `attribute` names."""
    chosen = pl.lit(None, pl.String)
    for attribute in (*_PAIRS, "race", "gender", "physical"):
        expression = expression_of(attribute.split("_"))
        chosen = pl.when(pl.col("attribute") == attribute).then(expression).otherwise(chosen)
    return chosen


def _described(columns: list[str]) -> pl.Expr:
    spoken = (pl.col(column).replace(SPOKEN) for column in columns)
    return pl.concat_str([*spoken, pl.col("occupation")], separator=" ", ignore_nulls=True)


def slices(described: pl.DataFrame, dataset: str, *, most_images: int) -> dict[str, pl.DataFrame]:
    """Cut a dataset into slices: id -> its rows of `described`, sorted by set and image.

    A subset of more than `most_images` is cut between sets, so that a set never lies in two slices.
    """
    parts: dict[str, pl.DataFrame] = {}
    for subset in sorted(described["subset"].unique()):
        rows = described.filter(pl.col("subset") == subset).sort("set_id", "image_id")
        unit = pl.coalesce("set_id", "image_id")
        if rows.height <= most_images:
            parts[Slice(dataset, subset).id] = rows
            continue
        first = rows.with_row_index("row").with_columns(pl.col("row").min().over(unit) // most_images)
        for number, part in enumerate(first.partition_by("row", maintain_order=True, include_key=False)):
            parts[Slice(dataset, subset, number).id] = part
    return parts


def asked_rows(
    rows: pl.DataFrame,
    entries: Sequence[GenerateEntry],
    *,
    identity: str,
    decoding: Decoding,
    root: Path,
    sees: bool = True,
    articles: Articles = "repaired",
) -> list[Asked]:
    """Return every row to generate for a slice, each once, those of one image adjacent.

    Parameters
    ----------
    rows : DataFrame
        One slice of `slices`, of which entries may choose a part (`chosen`).
    identity : str
        Of the backend.
    root : Path
        Of the dataset.
    sees : bool
        False for a language model: it is told in words what the picture shows, and asked `BASE_LLM_PROMPT` only.
    articles : {"repaired", "as_printed"}
        As in `plumbline.catalog.prompts.render`.

    Raises
    ------
    ConfigError
        If a prompt names the occupation, and no image of the slice has one. Single images without are left out.
    """
    if rows.height and rows["occupation"].null_count() == rows.height:
        refuse_occupations(entries)
    asked_by_key: dict[str, Asked] = {}
    images_of = [(entry, set(chosen(rows, entry)["image_id"])) for entry in entries]
    for record in rows.iter_rows(named=True):
        subject = Subject(record["image_id"], root / record["path"] if sees else None, record["set_id"])
        for entry, images in images_of:
            if record["image_id"] not in images:
                continue
            for question in _questions(record, entry, sees=sees, articles=articles):
                key = row_key(identity, subject, question, decoding)
                asked_by_key.setdefault(key, Asked(subject, question, key))
    return list(asked_by_key.values())


def refuse_occupations(entries: Sequence[GenerateEntry]) -> None:
    """Refuse prompts that name the occupation, of a dataset without any.

    Raises
    ------
    ConfigError
        With these prompts.
    """
    named = sorted({p for entry in entries for p in entry.prompt_ids if needs_occupation(p)})
    if named:
        raise ConfigError(
            "these prompts name the occupation of who is pictured, and the dataset has none",
            found=", ".join(named),
            expected="prompts without an occupation, or a dataset with the label `occupation`",
        )


def chosen(rows: pl.DataFrame, entry: GenerateEntry) -> pl.DataFrame:
    """Return the rows that an entry asks about: its subsets, its occupations, so many sets of each.

    Which sets of an occupation are taken was decided over the whole subset (`set_rank`), so that it does not depend on
    how the subset is cut.
    """
    kept = rows
    if entry.subsets != "all":
        kept = kept.filter(pl.col("subset").is_in(entry.subsets))
    if entry.occupations is not None:
        names = [name.lower() for name in entry.occupations]
        kept = kept.filter(pl.col("occupation").str.to_lowercase().is_in(names))
    if entry.sets_per_occupation is not None:
        kept = kept.filter(pl.col("set_rank") <= entry.sets_per_occupation)
    return kept


def require_names(entry: GenerateEntry, people: pl.DataFrame) -> None:
    """Refuse a name that is in none of the entry's datasets: beside a good one it would go unnoticed.

    Raises
    ------
    ConfigError
        With the names that there are.
    """
    for column, wanted in (("subset", entry.subsets), ("occupation", entry.occupations)):
        known = people[column].drop_nulls().unique().sort().to_list()
        for name in wanted if isinstance(wanted, tuple) else ():
            if name not in known:
                raise ConfigError(
                    f"an entry of `generate` names a value of `{column}` that none of its datasets has",
                    found=name,
                    expected=f"one of {', '.join(known)}{suggestion(name, known)}",
                )


def require_images(entry: GenerateEntry, dataset: str, cut: dict[str, pl.DataFrame]) -> None:
    """Refuse an entry that chooses no image of a dataset.

    Parameters
    ----------
    cut : dict of str to DataFrame
        Slices of the dataset, from `slices`.

    Raises
    ------
    ConfigError
        With the subsets and occupations that there are.
    """
    if any(chosen(rows, entry).height for rows in cut.values()):
        return
    people = pl.concat(cut.values()) if cut else pl.DataFrame(schema={"subset": pl.String, "occupation": pl.String})
    occupations = people["occupation"].drop_nulls().unique().sort().to_list()
    raise ConfigError(
        f"an entry of `generate` asks about no image of `{dataset}`",
        found=f"subsets {entry.subsets}, occupations {entry.occupations or 'all'}",
        expected=f"subsets {', '.join(people['subset'].unique().sort())}"
        + (f"; occupations such as {', '.join(occupations[:5])}" if occupations else ""),
    )


def _questions(record: dict[str, str], entry: GenerateEntry, *, sees: bool, articles: Articles) -> Iterator[Question]:
    prompts: Iterable[str] = entry.prompt_ids if sees else {BASE_LLM_PROMPT} & set(entry.prompt_ids)
    instructions = entry.instructions if sees else {NO_INSTRUCTION} & set(entry.instructions)
    for prompt in prompts:
        occupation = record["occupation"]
        if needs_occupation(prompt) and occupation is None:
            continue
        for instruction in instructions:
            text = render(
                prompt,
                instruction=instruction,
                occupation=occupation if needs_occupation(prompt) else None,
                described=None if sees else record["described"],
                articles=articles,
            )
            for seed in entry.seeds:
                yield Question(prompt, instruction, text, seed)
