"""Audit files that commands write: of the options of `plumbline audit`, and for a folder by `plumbline init`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import polars as pl
import yaml

from plumbline.catalog.suites import suite_names
from plumbline.commands.places import from_here
from plumbline.datasets.folder import AS_CSV, TABLE_KINDS, MappedFolder, of_other_separators, table_rows
from plumbline.datasets.indexes import Row, read_header, table_schema
from plumbline.datasets.records import Refusal, printable
from plumbline.datasets.registry import reader_names
from plumbline.encoders.folders import CONFIGURATIONS
from plumbline.errors import ConfigError, DatasetError, examples, suggestion
from plumbline.images.decoding import SUFFIXES
from plumbline.storage.files import commit_bytes

# --- What lies in a folder: its table, where the paths in it start, which columns tell of people, and checkpoints.

_SUFFIXES = tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)

MOST_ROWS = 20_000
"""Rows of a table that are looked at."""

_KNOWN = {
    "gender": ("gender", "sex"),
    "race": ("race", "ethnicity", "origin", "ethnic_group"),
    "age": ("age", "years", "age_years"),
    "age_group": ("age_group", "age_band", "age_range"),
    "occupation": ("occupation", "job", "profession"),
    "split": ("split", "part", "partition"),
}
"""Attribute of an audit -> names of columns that are taken for it."""

_MOST_GROUPS, _FEWEST_ROWS_A_GROUP, _EXAMPLES, _LOOKED_AT = 40, 3, 3, 50


@dataclass(frozen=True)
class Table:
    """A table of labels.

    Attributes
    ----------
    path : Path
    frame : DataFrame
        Its first rows, all of them texts; columns without a name left out.
    refused : str
        Why its first row that cannot be read cannot be; empty without one.
    """

    path: Path
    frame: pl.DataFrame
    refused: str = ""

    @classmethod
    def read(cls, path: Path) -> Table:
        """Read the first rows of a CSV or Parquet table, as an audit reads them.

        Raises
        ------
        DatasetError
            If it cannot be read.
        """
        if path.suffix == ".parquet":
            names = tuple(table_schema(path, name=path.name).names)
        else:
            names = read_header(path, name=path.name).names
        columns = [name for name in names if names.count(name) == 1]
        listed = list(islice(table_rows(path, name=path.name, columns=columns), MOST_ROWS))
        rows = [row.values for row in listed if isinstance(row, Row)]
        refused = next((f"line {row.line}: {row.message}" for row in listed if isinstance(row, Refusal)), "")
        return cls(path, pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String)), refused)

    @property
    def columns(self) -> list[str]:
        """Return the names of its columns."""
        return self.frame.columns

    def path_column(self, folder: Path) -> str | None:
        """Return the column whose values are files below a folder, one of its folders, or the folder of the table."""
        for column in self.columns:
            if any(self._there(column, start) for start in _starts(self, folder)):
                return column
        return None

    def _there(self, column: str, start: Path) -> bool:
        values = [value for value in self.frame[column].head(_LOOKED_AT) if value.strip()]
        images = sum(Path(value).suffix.lower() in _SUFFIXES and (start / value).is_file() for value in values)
        return images > len(values) / 2

    def guessed(self, *, besides: str | None) -> dict[str, str]:
        """Return attribute -> column of those that hold groups of people, by their names and values."""
        rows = self.frame.height
        column_of: dict[str, str] = {}
        for column in self.columns:
            attribute = attribute_of(column)
            values = self.frame[column].filter(self.frame[column].str.strip_chars() != "")
            groups = values.n_unique()
            few = 2 <= groups <= min(_MOST_GROUPS, max(2, rows // _FEWEST_ROWS_A_GROUP))
            if column != besides and attribute not in column_of and (few or (attribute == "age" and groups > 1)):
                column_of[attribute] = column
        return column_of

    def values(self, column: str) -> list[tuple[str, int]]:
        """Return value -> rows, the most frequent first."""
        counted = self.frame[column].value_counts(sort=True)
        return [(str(value), int(n)) for value, n in counted.iter_rows()]

    def examples(self) -> str:
        """Return the columns with three values of each."""
        return "; ".join(
            f"{column}: {', '.join(self.frame[column].unique(maintain_order=True).head(_EXAMPLES).to_list())}"
            for column in self.columns
        )


def attribute_of(column: str) -> str:
    """Return the attribute that a column is taken for: a known one by its name, else its own name."""
    name = column.strip().lower().replace(" ", "_")
    return next((attribute for attribute, names in _KNOWN.items() if name in names), column)


def _starts(table: Table, folder: Path) -> list[Path]:
    below = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    return list(dict.fromkeys([folder, table.path.parent, *below]))


def paths_start(table: Table, column: str, folder: Path) -> Path:
    """Return where the paths of a column start: the folder of images, one in it, or the folder of the table."""
    return next((start for start in _starts(table, folder) if table._there(column, start)), folder)


def table_of_folder(folder: Path) -> Table | None:
    """Return the table of a folder: of several the one whose rows name images there, else one with rows."""
    tables = [Table.read(path) for path in sorted(folder.iterdir()) if path.suffix in TABLE_KINDS and path.is_file()]
    tables.sort(key=lambda table: table.frame.is_empty())
    return next((table for table in tables if table.path_column(folder)), tables[0] if tables else None)


def _require_rows(table: Table) -> None:
    """Refuse a table that tells of no image, and one whose columns are separated by another sign than a comma."""
    if of_other_separators(table.columns):
        raise DatasetError("the table has one column", where=table.path, found=_plain(table.columns[0]), hint=AS_CSV)
    if table.frame.is_empty():
        columns = ", ".join(map(_plain, table.columns))
        raise DatasetError(
            "the table has no rows that can be read",
            where=table.path,
            found=table.refused or (f"the columns {columns}, and nothing below them" if columns else "nothing"),
            expected="a row an image: its path, and a column for each attribute, such as gender",
        )


def checkpoints_in(folder: Path) -> list[Path]:
    """Return the folders in it, itself included, that hold a checkpoint of an encoder."""
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))]
    return [path for path in folders if any((path / name).is_file() for name in CONFIGURATIONS)]


def images_in(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that are named as images are."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _SUFFIXES and path.is_file())


# --- The audit file that the options of `plumbline audit` stand for.


@dataclass(frozen=True)
class AskedByOptions:
    """What the options name; nothing where an audit file is meant."""

    models: Sequence[str]
    images: Path | None
    labels: Path | None
    mapped: Sequence[str]
    datasets: Sequence[str]
    suites: Sequence[str]

    @classmethod
    def of(
        cls,
        models: Sequence[str] | None,
        images: Path | None,
        labels: Path | None,
        mapped: Sequence[str] | None,
        datasets: Sequence[str] | None,
        suites: Sequence[str] | None,
        *,
        config: Path | None,
    ) -> AskedByOptions | None:
        """Return what is asked; None where no option is given; refuses options beside an audit file."""
        options = cls(models or (), images, labels, mapped or (), datasets or (), suites or ())
        named = [f"--{name}" for name, value in vars(options).items() if value]
        if not named:
            return None
        if config is not None:
            raise ConfigError(
                "an audit file and options that stand for one are given",
                found=f"--config {config} beside {', '.join(named)}",
                expected="either `--config FILE`, or `--model`, `--images` and their like",
            )
        return options

    def write(self, path: Path) -> Path:
        """Write the audit file that the options stand for, and return its path."""
        text = "# The audit file that the options of `plumbline audit` stand for.\n" + self.text()
        path.parent.mkdir(parents=True, exist_ok=True)
        from upath import UPath

        commit_bytes(UPath(path), text.encode())
        return path

    def text(self) -> str:
        """Return the audit file.

        Raises
        ------
        ConfigError
            If an option cannot be meant.
        """
        if not self.models:
            raise ConfigError(
                "no model is named",
                where="--model",
                expected="a folder with a checkpoint, hf-hub:ORG/NAME@COMMIT or ARCHITECTURE/TAG",
            )
        if self.images is None and not self.datasets:
            raise ConfigError(
                "no images are named", where="--images", expected="--images FOLDER, or --dataset READER=FOLDER"
            )
        datasets = dict(_named_dataset(text) for text in self.datasets)
        if self.images is not None:
            datasets[slug(self.images.resolve().name)] = self._folder(self.images)
        entry: dict[str, object] = {}
        if suites := [name for text in self.suites for name in text.split(",") if name]:
            # Suites of one's own are files.
            known = suite_names()
            if unknown := [name for name in suites if name not in known and Path(name).suffix != ".yaml"]:
                raise ConfigError(
                    "there is no such suite",
                    where="--suite",
                    found=unknown[0] + suggestion(unknown[0], known),
                    expected=f"of {', '.join(known)}",
                )
            entry["suites"] = suites
        encoders = {name: {"address": address_of(model)} for name, model in encoder_ids(self.models).items()}
        content = {"datasets": datasets, "encoders": encoders, "audit": [entry]}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)

    def _folder(self, images: Path) -> dict[str, object]:
        folder = images.resolve()
        if not folder.is_dir():
            raise ConfigError("the folder of images is not there", where="--images", found=str(images))
        if self.labels is not None and not self.labels.exists():
            beside = (folder / self.labels.name).exists()
            raise ConfigError(
                "the table of labels is not there",
                where="--labels",
                found=str(self.labels.resolve()),
                expected="a CSV or Parquet file",
                hint=f"{self.labels.name} lies in {folder}: leave `--labels` out, or name it there" if beside else None,
            )
        table = Table.read(self.labels.resolve()) if self.labels is not None else table_of_folder(folder)
        if table is None:
            raise ConfigError(
                "no table says who is on which image",
                where="--labels",
                found=f"no {' or '.join(TABLE_KINDS)} file in {folder}",
                expected="--labels FILE, with a column of paths and one for each attribute, such as gender",
            )
        _require_rows(table)
        chosen = dict(_pair(pair) for text in self.mapped for pair in text.split(",") if pair)
        for column in chosen.values():
            if column not in table.columns:
                raise ConfigError(
                    "the table has no such column",
                    where=f"--map, for {table.path}",
                    found=column + suggestion(column, table.columns),
                    expected=f"one of {', '.join(table.columns)}",
                )
        path = chosen.pop("path", None) or table.path_column(folder)
        if path is None:
            raise ConfigError(
                "no column of the table holds paths of images",
                where=f"--labels {table.path}",
                found=table.examples(),
                expected=f"paths of files below {folder}",
                hint="name the column with `--map path=COLUMN`, or another folder with `--images`",
            )
        columns = chosen or table.guessed(besides=path)
        root = Path(os.path.commonpath([folder, table.path.parent]))
        column_map: dict[str, object] = {"index": table.path.relative_to(root).as_posix(), "path": path}
        below = paths_start(table, path, folder)
        if below != root:
            column_map["images"] = below.relative_to(root).as_posix()
        return {"reader": "folder", "root": str(root), "map": {**column_map, "columns": columns}}


def _pair(text: str) -> tuple[str, str]:
    attribute, equals, column = (part.strip() for part in text.partition("="))
    if not (attribute and equals and column):
        raise ConfigError("this maps nothing", where="--map", found=text, expected="ATTRIBUTE=COLUMN")
    return attribute, column


def _named_dataset(text: str) -> tuple[str, dict[str, object]]:
    reader, equals, root = text.partition("=")
    if not equals or reader not in reader_names() or not root:
        raise ConfigError(
            "this names no dataset",
            where="--dataset",
            found=text,
            expected=f"READER=FOLDER, with a reader of {', '.join(reader_names())}",
        )
    return reader, {"reader": reader, "root": root if ":" in root else str(from_here(root))}


def address_of(model: str) -> str:
    """Return the address of a checkpoint as a person names it: a folder is `local-dir:`, a hub's newest is fetched."""
    if ":" not in model and from_here(model).exists():
        return f"local-dir:{from_here(model)}"
    if model.startswith("local-dir:"):
        return f"local-dir:{from_here(model.removeprefix('local-dir:'))}"
    if model.startswith("hf-hub:") and "@" not in model:
        return f"{model}@fetched"
    return model


def _require_there(model: str) -> None:
    """Refuse a path that leads nowhere: other checkpoints are named by an address."""
    is_path = model.startswith("local-dir:") or (":" not in model and model[:1] in "/.~")
    path = from_here(model.removeprefix("local-dir:"))
    if is_path and not path.exists():
        raise ConfigError(
            "there is no such checkpoint",
            where="--model",
            found=str(path),
            expected="a folder with a checkpoint, hf-hub:ORG/NAME@COMMIT or ARCHITECTURE/TAG",
        )


def slug(name: str) -> str:
    """Return a name as an id of an audit file."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower().partition("@")[0]).strip("-._") or "mine"


def encoder_ids(models: Sequence[str]) -> dict[str, str]:
    """Return id -> checkpoint: the name of its folder, or of its run and epoch; of equal names with a number.

    Parameters
    ----------
    models : sequence of str
        Addresses or paths. open_clip's trainer writes `RUN/checkpoints/epoch_1.pt`.
    """
    ids: dict[str, str] = {}
    for model in models:
        path = Path(model)
        run = path.parent.parent if path.parent.name == "checkpoints" else path.parent
        name = slug(f"{run.name}-{path.stem}" if path.suffix == ".pt" and run.name else path.name)
        number = next(i for i in count(1) if (name if i == 1 else f"{name}-{i}") not in ids)
        ids[name if number == 1 else f"{name}-{number}"] = model
    return ids


# --- The audit file that `plumbline init` writes for a folder, with comments on what is there.

_SHOWN, _MANY = 8, 12


def audit_file_for(folder: Path, models: list[str] | tuple[str, ...]) -> str:
    """Return a commented audit file for a folder.

    Parameters
    ----------
    models : sequence of str
        Checkpoints as `--model` names them; those that lie in the folder where there is none.

    Raises
    ------
    DatasetError
        If the folder is not there, or holds neither images nor a table with rows.
    """
    root = folder.resolve()
    if not root.is_dir():
        raise DatasetError("the folder is not there", where=folder, expected="a folder of images")
    table = table_of_folder(root)
    first = list(islice(images_in(root), 2))
    if not first and table is None:
        raise DatasetError(
            "the folder holds neither images nor a table",
            where=root,
            found=examples(sorted(path.name for path in root.iterdir())) or "nothing",
            expected="images (JPEG, PNG, WebP), and a CSV or Parquet table that says who is on which",
        )
    if table is not None:
        _require_rows(table)
    for model in models:
        _require_there(model)
    lines = ["# Written by `plumbline init`: look it over, then run `plumbline check`.", "datasets:"]
    lines += [f"  {slug(root.name)}:", *("    " + line for line in _dataset(root, table))]
    addresses = [address_of(model) for model in models] or [f"local-dir:{path}" for path in checkpoints_in(root)]
    if addresses:
        lines += ["encoders:"]
        lines += [f"  {name}: {{address: {json.dumps(each)}}}" for name, each in encoder_ids(addresses).items()]
    else:
        lines += ["encoders:", '  mine: {address: "local-dir:FILL-IN"}   # a checkpoint, or hf-hub:ORG/NAME@COMMIT']
    lines += ["audit:", "  - {}   # every encoder on every dataset, with all suites that apply; or {suites: [crime]}"]
    return "\n".join(lines) + "\n"


def _dataset(root: Path, table: Table | None) -> list[str]:
    if table is None:
        return _without_table(root)
    path = table.path_column(root)
    lines = ["reader: folder", f"root: {_quoted(str(root))}", "map:", f"  index: {_quoted(table.path.name)}"]
    if path is None:
        lines += [
            "  path: FILL IN   # the column with each image's path below the root; the table has:",
            *(f"  #   {_plain(column)}: {_counted(table, column)}" for column in table.columns),
        ]
    else:
        lines += [f"  path: {_quoted(path)}"]
        if (start := paths_start(table, path, root)) != root:
            lines += [f"  images: {_quoted(start.relative_to(root).as_posix())}"]
    guessed = table.guessed(besides=path)
    lines += ["  columns:   # attribute: column of the table; take out what people should not be compared by"]
    for attribute, column in guessed.items():
        lines += [f"    {_quoted(attribute)}: {_quoted(column)}   # {_counted(table, column)}"]
    if not guessed:
        lines[-1] = "  columns: {}   # FILL IN attribute: column, such as {gender: sex}"
    others = [name for name in table.columns if name != path and name not in guessed.values()]
    lines += [f"    # not taken: {_plain(name)} ({_counted(table, name)})" for name in others]
    lines += ["    # set_id: COLUMN   # where several images show one person or scene: the column that says which"]
    if "gender" in guessed:
        counted = table.values(guessed["gender"])
        lines += _gender_values([value for value, n in counted if n >= MappedFolder.smallest_shown])
    if "split" in guessed and "train" not in (parts := [value for value, _ in table.values(guessed["split"])]):
        first = json.dumps(parts[0] if parts else "A")
        lines += [f"  # values: {{split: {{{first}: train}}}}   # FILL IN: mitigations are trained on `train` alone"]
    lines += ["  # bins: {age: [0, 18, 30, 45, 65, 120]}   # numbers into groups; ages have FairFace's without it"]
    lines += ["  # min_shown: 5   # smaller groups appear nowhere"]
    lines += ["# balance: {gender: [0.40, 0.60]}   # refuse the audit where a group's share is outside"]
    return lines


_GENDERS = {"m": "man", "male": "man", "men": "man", "f": "woman", "female": "woman", "women": "woman", "w": "woman"}


def _gender_values(values: Sequence[str]) -> list[str]:
    """Say what the values of gender mean, where they are not the words of the prompts already."""
    if {"man", "woman"} <= {value.lower() for value in values}:
        return []
    meant = {value: _GENDERS.get(value.strip().lower(), value) for value in values if value.strip()}
    if not {"man", "woman"} <= set(meant.values()) or len(meant) > _MANY:
        return [
            "  # values: {gender: {M: man, F: woman}}   # FILL IN: without the names man and woman, which the prompts",
            "  #   have, nobody can tell whether a model sees anything; name every other value too, such as `X: X`",
        ]
    return [
        f"  values: {{gender: {json.dumps(meant)}}}   # look it over: the names of the prompts;",
        "  #   a value that is not named has no group",
    ]


def _without_table(root: Path) -> list[str]:
    folders = sorted({path.parent for path in images_in(root)})
    comment = (
        "# There is no table: without one nobody can be compared. Write a CSV with a row an image, then run this again."
    )
    reader = "neutral" if folders == [root] else "image_folder"
    what = "portraits without labels" if reader == "neutral" else "a folder a class of things"
    return [comment, f"reader: {reader}   # {what}", f"root: {_quoted(str(root))}"]


def _counted(table: Table, column: str) -> str:
    """Return the values of a column with their rows; none of few rows, which may be somebody's name or address."""
    values = table.values(column)
    many = [f"{_plain(value)} {n}" for value, n in values if n >= MappedFolder.smallest_shown][:_SHOWN]
    left = f"{len(values) - len(many):,} {'more ' if many else ''}values"
    return ", ".join([*many, left] if len(values) > len(many) else many)


def _plain(value: str) -> str:
    return printable(value)[: _MANY * 2] if value.strip() else "(empty)"


def _quoted(text: str) -> str:
    """Return a text as YAML writes it on one line."""
    plain = yaml.safe_dump(text, allow_unicode=True, width=10_000).splitlines()[0].strip()
    with suppress(yaml.YAMLError):
        if yaml.safe_load(plain) == text:
            return plain
    return json.dumps(text)
