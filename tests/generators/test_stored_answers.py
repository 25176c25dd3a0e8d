"""Answers that were given elsewhere: each question has the answer of its own row, and what is lacking is counted."""

from pathlib import Path

import polars as pl
import pytest
from pydantic import ValidationError
from upath import UPath

from plumbline.config.entries import LvlmEntry
from plumbline.errors import GenerationError
from plumbline.generators.backend import Asked, Decoding, Question, Subject
from plumbline.generators.generation import GenerationStore, generate
from plumbline.generators.stored_answers import StoredAnswers, StoredAnswersSettings

ROOT = Path("/data/faces")
ROWS = [
    {"file": "x/1.jpg", "task": "describe", "n": 0, "said": "a chef"},
    {"file": "x/1.jpg", "task": "describe", "n": 1, "said": ""},
    {"file": "b" * 64, "task": "describe", "n": 0, "said": "Zoë, a nurse"},
    {"file": "x/9.jpg", "task": "describe", "n": 0, "said": "nobody asked"},
]
COLUMNS = {"image": "file", "prompt": "task", "seed": "n", "text": "said"}


def asked(image, path, seed=0, prompt="characteristics"):
    subject = Subject(image * 64, ROOT / path)
    return Asked(subject, Question(prompt, "none", "…", seed), f"{image}{seed}{prompt}")


QUESTIONS = [asked("a", "x/1.jpg"), asked("a", "x/1.jpg", 1), asked("b", "x/2.jpg")]


def stored(folder, rows=ROWS, kind="jsonl", **changes):
    path = folder / f"answers.{kind}"
    frame = pl.DataFrame(rows)
    {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[kind](path)
    settings = {"files": [path.name], "columns": COLUMNS, "prompts": {"describe": "characteristics"}} | changes
    return StoredAnswers(StoredAnswersSettings.model_validate(settings), (path,), (ROOT,))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_each_question_has_the_answer_of_its_row_by_path_or_hash(tmp_path, kind):
    backend = stored(tmp_path, kind=kind)
    held, missing = backend.answered(QUESTIONS)
    assert (held, missing, backend.surplus(len(held))) == (QUESTIONS, 0, 1)
    told = generate(backend, held, Decoding(), GenerationStore(UPath(tmp_path / "store"))).frame
    assert told["text"].to_list() == ["a chef", "", "Zoë, a nurse"]
    assert set(told["finish_reason"]) == {"stop"} and set(told["source"]) == {f"answers.{kind}"}


def test_without_seeds_answers_count_up_as_they_stand(tmp_path):
    backend = stored(tmp_path, columns={**COLUMNS, "seed": None})
    assert [answer.text for _, answer in backend.answers(QUESTIONS, Decoding())] == ["a chef", "", "Zoë, a nurse"]


def test_missing_answers_are_counted_and_left_out_only_where_that_is_allowed(tmp_path):
    more = [*QUESTIONS, asked("a", "x/1.jpg", 2)]
    with pytest.raises(GenerationError, match="1 of 4 questions have no stored answer") as refused:
        stored(tmp_path).answered(more)
    assert "1.jpg, prompt characteristics, instruction none, seed 2" in refused.value.found
    assert stored(tmp_path, most_missing=0.25).answered(more) == (QUESTIONS, 1)


@pytest.mark.parametrize(
    ("rows", "what", "where"),
    [
        ([*ROWS, ROWS[0]], "1 stored answers are to a question", "answers.jsonl, line 5, as answers.jsonl, line 1"),
        ([*ROWS, ROWS[0] | {"n": 0.5}], "1 of 5 values", "column `n`"),
        ([*ROWS, ROWS[0] | {"n": float("nan")}], "1 of 5 values", "column `n`"),
        ([*ROWS, ROWS[0] | {"n": -1}], "1 of 5 values", "column `n`"),
        ([*ROWS, ROWS[0] | {"said": None}], "1 of 5 values", "column `said`"),
        ([*ROWS, ROWS[0] | {"file": ""}], "1 of 5 values", "column `file`"),
        ([{"file": "x/1.jpg", "task": "describe", "n": 0}], "lack a column", "answers.jsonl"),
    ],
)
def test_what_is_wrong_with_rows_is_told_by_place_and_counted(tmp_path, rows, what, where):
    frame = pl.DataFrame(rows, strict=False, schema_overrides={"n": pl.Float64})
    with pytest.raises(GenerationError) as refused:
        stored(tmp_path, rows=frame).answered(QUESTIONS)
    assert what in refused.value.what and where in str(refused.value.where)


@pytest.mark.parametrize(
    ("column", "values"),
    [("n", pl.Series([2**62], dtype=pl.Datetime("us"))), ("said", pl.Series([2**30], dtype=pl.Date)),
     ("said", pl.Series([["a chef"]]))],
)  # fmt: skip
def test_dates_that_python_cannot_hold_and_lists_are_refused_by_column(tmp_path, column, values):
    rows = pl.DataFrame(ROWS[:1]).with_columns(values.alias(column))
    with pytest.raises(GenerationError, match="a column of stored answers cannot be used") as refused:
        stored(tmp_path, rows=rows, kind="parquet").answered(QUESTIONS)
    assert f"column `{column}`" in refused.value.where and "values of type" in refused.value.found


def test_other_words_are_another_identity(tmp_path):
    first = stored(tmp_path).identity
    assert stored(tmp_path).identity == first
    assert stored(tmp_path, rows=[ROWS[0] | {"said": "a cook"}]).identity != first
    assert stored(tmp_path, prompts={}).identity != first


def test_a_model_is_a_checkpoint_an_endpoint_or_answers():
    answers = {"files": ["a.jsonl"]}
    assert LvlmEntry.model_validate({"answers": answers}).answers.columns.text == "text"
    for entry in ({}, {"answers": answers, "address": "local-dir:x"}, {"answers": {"files": []}}):
        with pytest.raises(ValidationError):
            LvlmEntry.model_validate(entry)


LINE = '{{"file": "x/1.jpg", "task": "describe", "n": {n}, "said": {said}}}'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[" * 100_000, ["nested too deep", "line 2"]),
        (LINE.format(n=0, said="[" * 100_000), ["nested too deep", "line 2"]),
        (LINE.format(n=0, said="[" * 150 + "]" * 150), ["line 2: a list", "column `said`"]),
        (LINE.format(n="9" * 5000, said='"x"'), ["too many digits", "line 2"]),
        (LINE.format(n=0, said='"x", "more": ' + "9" * 5000), ["too many digits", "line 2"]),
        (LINE.format(n="9" * 400, said='"x"'), ["line 2: a number of too many digits", "column `n`"]),
        (LINE.format(n=0, said="9" * 4000), ["line 2: a number of too many digits", "column `said`"]),
        (LINE.format(n=f'"{"0" * 5000}1"', said='"x"'), ["line 2: '0000", "column `n`"]),
        (LINE.format(n=0, said="1e999"), ["line 2: inf", "column `said`"]),
    ],
)
def test_lines_that_python_cannot_hold_are_refused_by_file_and_line(tmp_path, line, says):
    path = tmp_path / "answers.jsonl"
    path.write_text(LINE.format(n=1, said='"x"') + "\n" + line + "\n")
    settings = StoredAnswersSettings.model_validate({"files": [path.name], "columns": COLUMNS})
    with pytest.raises(GenerationError) as refused:
        StoredAnswers(settings, (path,), (ROOT,)).answered(QUESTIONS)
    told = str(refused.value)
    assert all(part in told for part in ("answers.jsonl", *says)) and len(told) < 1000, told
