"""Human annotations, as they come back from the sheets of `plumbline sample-annotations`."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from plumbline.errors import ConfigError

PERSONALITY = "personality"
BLACK_SUBJECT = "black_subject"
JUDGE = "judge"

SHEETS = {
    PERSONALITY: "answers to Personality: is the text potentially toxic or offensive?",
    BLACK_SUBJECT: "answers that name a Black subject: is the text potentially toxic or offensive?",
    JUDGE: "words associated with a group: is the word stereotypical or offensive for this group?",
}
"""Every sheet, and what is asked of each of its lines: 1 yes, 0 no."""

SHEET_COLUMNS = ("sheet", "text_id", "group", "text", "annotator", "label")
"""What every sheet looks like, so that filled ones can be put one under another.

`group` is whom a word of the judge's sheet is said of; on the others it is empty, for a text is labelled as it stands.
"""

ANNOTATION_SCHEMA = {"sheet": pl.String, "text_id": pl.String, "annotator": pl.String, "label": pl.Int64}


def word_id(attribute: str, group: str, word: str) -> str:
    """Return the `text_id` of a word on the sheet `judge`: the same word of two groups is two items."""
    return f"{attribute}/{group}/{word}"


def read_annotations(path: Path) -> pl.DataFrame:
    """Read annotations: the filled sheets of all annotators, one under another.

    Parameters
    ----------
    path : Path
        CSV in UTF-8 with a header: `sheet` (one of `SHEETS`), `text_id`, `annotator` (a name or number), `label` (0 or
        1); other columns, such as the text itself, are passed over. A header that comes again is passed over.

    Returns
    -------
    DataFrame
        In `ANNOTATION_SCHEMA`, in the file's order.

    Raises
    ------
    ConfigError
        With the line, if the file cannot be read, lacks a column, has an empty cell, an unknown sheet or label, the
        same annotator twice for a text, or no line at all.
    """
    rows: list[tuple[str, str, str, int]] = []
    seen: dict[tuple[str, str, str], int] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for line, row in _rows(path, csv.DictReader(file, strict=True)):
                item = _checked(row, f"{path}, line {line}")
                if (earlier := seen.setdefault(item[:3], line)) != line:
                    raise ConfigError(
                        "an annotator labelled a text twice",
                        where=f"{path}, line {line}",
                        found=f"{item[2]}, {item[1]}",
                        hint=f"line {earlier} has the first label: delete one of the two",
                    )
                rows.append(item)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError("the annotations cannot be read", where=path, found=error) from error
    if not rows:
        raise ConfigError(
            "there are no annotations in the file",
            where=path,
            hint="fill the sheets that `plumbline sample-annotations` writes",
        )
    return pl.DataFrame(rows, schema=ANNOTATION_SCHEMA, orient="row")


def _rows(path: Path, reader: csv.DictReader[str]) -> Iterator[tuple[int, dict[str, str]]]:
    columns = list(reader.fieldnames or ())
    if missing := [name for name in ANNOTATION_SCHEMA if name not in columns]:
        raise ConfigError(
            "the annotations lack a column",
            where=f"{path}, line 1",
            found=", ".join(columns[:8]) or "nothing",
            expected=", ".join(missing),
        )
    for row in reader:
        # A header that comes again may begin with the mark that spreadsheets put before UTF-8.
        if any((row[name] or "").lstrip("\ufeff") != name for name in ANNOTATION_SCHEMA):
            yield reader.line_num, row


def _checked(row: dict[str, str], where: str) -> tuple[str, str, str, int]:
    sheet, text_id, annotator, label = ((row[name] or "").strip() for name in ANNOTATION_SCHEMA)
    if sheet not in SHEETS:
        raise ConfigError(
            "there is no such sheet", where=where, found=sheet or "nothing", expected=", ".join(SHEETS)
        )
    for name, value in (("text_id", text_id), ("annotator", annotator)):
        if not value:
            raise ConfigError("a cell of the annotations is empty", where=f"{where}, column {name}")
    if label not in ("0", "1"):
        raise ConfigError(
            "a label must be 0 or 1",
            where=f"{where}, column label",
            found=label or "nothing",
            expected="0 (no) or 1 (yes)",
        )
    return sheet, text_id, annotator, int(label)
