"""An audit without a file: options of `plumbline audit`, and the audit file that they stand for."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from plumbline.catalog.suites import suite_names
from plumbline.commands.looking import Table, paths_start, table_of_folder
from plumbline.commands.places import from_here
from plumbline.config.parts import suggestion
from plumbline.datasets.folder import TABLE_KINDS
from plumbline.datasets.registry import reader_names
from plumbline.errors import ConfigError
from plumbline.storage.files import commit_bytes


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
        asked = cls(models or (), images, labels, mapped or (), datasets or (), suites or ())
        named = [f"--{name}" for name, value in vars(asked).items() if value]
        if not named:
            return None
        if config is not None:
            raise ConfigError(
                "an audit file and options that stand for one are given",
                found=f"--config {config} beside {', '.join(named)}",
                expected="either `--config FILE`, or `--model`, `--images` and their like",
            )
        return asked

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
        encoders = {slug(Path(model).name): {"address": address_of(model)} for model in self.models}
        content = {"datasets": datasets, "encoders": encoders, "audit": [entry]}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)

    def _folder(self, images: Path) -> dict[str, object]:
        folder = images.resolve()
        if not folder.is_dir():
            raise ConfigError("the folder of images is not there", where="--images", found=str(images))
        table = Table.read(self.labels.resolve()) if self.labels is not None else table_of_folder(folder)
        if table is None:
            raise ConfigError(
                "no table says who is on which image",
                where="--labels",
                found=f"no {' or '.join(TABLE_KINDS)} file in {folder}",
                expected="--labels FILE, with a column of paths and one for each attribute, such as gender",
            )
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


def slug(name: str) -> str:
    """Return a name as an id of an audit file."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower().partition("@")[0]).strip("-._") or "mine"
