"""CSV files of the user: dictionaries of warmth and competence, and filled annotation sheets."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from plumbline.errors import ConfigError


def _rows(
    path: Path, columns: Sequence[str], what: str, *, strict: bool = True, hint: str | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each line, and its cells of some columns; `what` names the file's content in messages."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=strict)
            header = list(reader.fieldnames or ())
            for wrong, names in (
                ("lack a column", [name for name in columns if name not in header]),
                ("have a column twice", [name for name in columns if header.count(name) > 1]),
            ):
                if names:
                    raise ConfigError(
                        f"the {what} {wrong}",
                        where=f"{path}, line 1",
                        found=", ".join(header[:8]) or "nothing",
                        expected=f"each once: {', '.join(names)}",
                    )
            for row in reader:
                yield f"{path}, line {reader.line_num}", [(row[name] or "").strip() for name in columns]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"the {what} cannot be read", where=path, found=error, hint=hint) from error


# --- The SADCAT dictionaries.

_POLES = {
    "warmth": "Warmth_dict_hi",
    "coldness": "Warmth_dict_lo",
    "competence": "Competence_dict_hi",
    "incompetence": "Competence_dict_lo",
}


def read_dictionaries(path: Path) -> dict[str, set[str]]:
    """Read warmth, coldness, competence and incompetence from a copy of the SADCAT dictionaries.

    The poles are the columns `Warmth_dict_hi`, `Warmth_dict_lo`, `Competence_dict_hi` and `Competence_dict_lo`. The
    file also has `Warmth_dir` and `Competence_dir` with directions; they differ from the poles for 9 words of
    competence, and in all 9 the 861 words that the paper's authors released follow the poles (`exploit`, `commit` and
    `bully` are among them, `licence` is not). A word that is in both poles counts in both, as `bully` there.

    Parameters
    ----------
    path : Path
        CSV with a header: `word` and those four columns of 0 and 1; others are passed over.

    Returns
    -------
    dict of str to set of str
        The words of each pole as the file writes them, which is the form that
        `plumbline.language.competence.dictionary_form` gives.

    Raises
    ------
    ConfigError
        If the file is not there or not UTF-8, lacks a column, has a line without a word, a value besides 0 and 1, or
        no word in one of the poles.
    """
    poles: dict[str, set[str]] = {name: set() for name in _POLES}
    hint = "set the path to your copy of the SADCAT dictionaries, as CSV in UTF-8"
    for where, (word, *marks) in _rows(path, ["word", *_POLES.values()], "dictionaries", strict=False, hint=hint):
        if not word:
            raise ConfigError("a line of the dictionaries has no word", where=where)
        for name, mark in zip(_POLES, marks):
            if mark not in ("0", "1"):
                raise ConfigError(
                    "a dictionary says something else than yes or no",
                    where=f"{where}, column {_POLES[name]}",
                    found=mark or "nothing",
                    expected="0 or 1",
                )
            if mark == "1":
                poles[name].add(word.lower())
    if empty := [_POLES[name] for name, words in poles.items() if not words]:
        raise ConfigError("a dictionary has no words", where=path, found=", ".join(empty))
    return poles


# --- Sheets for human annotators, and their labels: those of `plumbline sample-annotations`.

PERSONALITY = "personality"
BLACK_SUBJECT = "black_subject"
JUDGE = "judge"

SHEETS = {
    PERSONALITY: "answers to Personality: is the text potentially toxic or offensive?",
    BLACK_SUBJECT: "answers that name a Black subject: is the text potentially toxic or offensive?",
    JUDGE: "words associated with a group: is the word stereotypical or offensive for this group?",
}
"""Every sheet, and what is asked of each of its lines: 1 yes, 0 no."""

ANNOTATION_SCHEMA = {"sheet": pl.String, "text_id": pl.String, "annotator": pl.String, "label": pl.Int64}


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
    labels: dict[tuple[str, ...], int] = {}
    places: dict[tuple[str, ...], str] = {}
    for where, cells in _rows(path, list(ANNOTATION_SCHEMA), "annotations"):
        # A header that comes again may begin with the mark that spreadsheets put before UTF-8.
        if [cell.lstrip("\ufeff") for cell in cells] == list(ANNOTATION_SCHEMA):
            continue
        sheet, text_id, annotator, label = cells
        if sheet not in SHEETS:
            known = ", ".join(SHEETS)
            raise ConfigError("there is no such sheet", where=where, found=sheet or "nothing", expected=known)
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
        item = (sheet, text_id, annotator)
        if item in labels:
            raise ConfigError(
                "an annotator labelled a text twice",
                where=where,
                found=f"{annotator}, {text_id}",
                hint=f"{places[item].removeprefix(f'{path}, ')} has the first label: delete one of the two",
            )
        labels[item], places[item] = int(label), where
    if not labels:
        raise ConfigError(
            "there are no annotations in the file",
            where=path,
            hint="fill the sheets that `plumbline sample-annotations` writes",
        )
    return pl.DataFrame([(*item, label) for item, label in labels.items()], schema=ANNOTATION_SCHEMA, orient="row")
