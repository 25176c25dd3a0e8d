"""The audit file that `plumbline init` writes for a folder, with comments on what is there."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import yaml

from plumbline.commands.looking import Table, checkpoints_in, images_in, paths_start, table_of_folder
from plumbline.commands.options import address_of, slug
from plumbline.errors import DatasetError

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
        If the folder is not there or holds no image.
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
            found=", ".join(sorted(path.name for path in islice(root.iterdir(), _SHOWN))) or "nothing",
            expected="images (JPEG, PNG, WebP), and a CSV or Parquet table that says who is on which",
        )
    lines = ["# Written by `plumbline init`: look it over, then run `plumbline check`.", "datasets:"]
    lines += [f"  {slug(root.name)}:", *("    " + line for line in _dataset(root, table))]
    found = [address_of(model) for model in models] or [f"local-dir:{path}" for path in checkpoints_in(root)]
    if found:
        lines += ["encoders:"]
        lines += [f"  {slug(Path(each).name)}: {{address: {json.dumps(each)}}}" for each in found]
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
            *(f"  #   {line}" for line in table.examples().split("; ")),
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
    lines += [f"    # not taken: {name} ({_counted(table, name)})" for name in others]
    if "gender" in guessed:
        lines += ["  # values: {gender: {M: man, F: woman}}   # where the table's words should be called otherwise"]
    lines += ["  # bins: {age: [0, 18, 30, 45, 65, 120]}   # numbers into groups; ages have FairFace's without it"]
    lines += ["  # min_shown: 5   # smaller groups appear nowhere"]
    lines += ["# balance: {gender: [0.40, 0.60]}   # refuse the audit where a group's share is outside"]
    return lines


def _without_table(root: Path) -> list[str]:
    folders = sorted({path.parent for path in images_in(root)})
    said = (
        "# There is no table: without one nobody can be compared. Write a CSV with a row an image, then run this again."
    )
    reader = "neutral" if folders == [root] else "image_folder"
    what = "portraits without labels" if reader == "neutral" else "a folder a class of things"
    return [said, f"reader: {reader}   # {what}", f"root: {_quoted(str(root))}"]


def _counted(table: Table, column: str) -> str:
    values = table.values(column)
    shown = ", ".join(f"{_plain(value)} {n}" for value, n in values[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{len(values)} values, such as {shown}"


def _plain(value: str) -> str:
    from plumbline.datasets.records import printable

    return printable(value)[: _MANY * 2] if value.strip() else "(empty)"


def _quoted(text: str) -> str:
    """Return a text as YAML writes it on one line."""
    return yaml.safe_dump(text, allow_unicode=True, width=10_000, default_style=None).splitlines()[0].strip()
