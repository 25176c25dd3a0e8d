"""CSV indexes: quoted values over several lines are one row, and a bad record never spoils the next."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.datasets import indexes as csv_index_module
from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.indexes import MAX_LINE_BYTES, RawLine, Row, read_rows
from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import Refusal
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError

HEADER = "photo,cap,sex\n"


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | bytes], list[Row | Refusal]]:
    """Return a function from a table's content to its rows."""
    path = tmp_path_factory.mktemp("csv") / "t.csv"

    def rows(content: str | bytes) -> list[Row | Refusal]:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return list(read_rows(path, name="t.csv", columns=["photo", "sex"]))

    return rows


def told(items: list[Row | Refusal]) -> list[tuple[object, ...]]:
    """Return line and photo of a row, line and code of a refusal."""
    return [(item.line, item.values["photo"]) if isinstance(item, Row) else (item.line, item.code) for item in items]


def written(rows: list[list[str]], ending: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=ending).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_value_over_several_lines_is_one_row_and_what_it_quotes_is_none(
    ending: str, read: Callable[[str], list[Row | Refusal]]
) -> None:
    caption = f"see{ending}b.jpg,then,F{ending}{ending}end"
    rows = [["photo", "cap", "sex"], ["a.jpg", caption, "M"], ["b.jpg", "x", "M"]]
    assert read(written(rows, ending)) == [
        Row(2, {"photo": "a.jpg", "cap": caption, "sex": "M"}),
        Row(6, {"photo": "b.jpg", "cap": "x", "sex": "M"}),
    ]


def fields_of(line: str) -> int:
    """Return the number of fields of a line that is read alone, 0 where its quotes do not allow that."""
    try:
        return len(next(csv.reader([line], strict=True)))
    except csv.Error:
        return 0


VALUES = st.text(st.sampled_from('ab é,;"\n\t'), max_size=6)
PUBLISHED = st.lists(st.tuples(st.sampled_from(["a.jpg", "b.jpg"]), VALUES, VALUES).map(list), min_size=1, max_size=8)


@settings(max_examples=300)
@given(rows=PUBLISHED, ending=st.sampled_from(["\n", "\r\n"]))
def test_what_the_standard_library_writes_is_read_back_with_its_lines(
    read: Callable[[str], list[Row | Refusal]], rows: list[list[str]], ending: str
) -> None:
    """But for a text each of whose later lines might be a row: nothing tells it from rows that a quote joined."""
    expected: list[object] = []
    line = 2
    for row in rows:
        lines = written([row], ending).split("\n")[:-1]
        alone = [fields_of(later) for later in lines[1:] if later.strip()]
        if alone and set(alone) == {3}:
            expected += [(number, "ragged_row") for number, text in enumerate(lines, line) if text.strip()]
        else:
            expected.append(Row(line, dict(zip(["photo", "cap", "sex"], row))))
        line += len(lines)
    items = read(HEADER + written(rows, ending))
    assert [item if isinstance(item, Row) else (item.line, item.code) for item in items] == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # In a value that nothing reads, and in one that is read.
        (['a.jpg,"5 inch,M', "b.jpg,y,F", 'c.jpg,y",M'], [2, 3, 4]),
        (['a.jpg,x,"5 inch', "b.jpg,y,F", 'c.jpg,y,7"'], [2, 3, 4]),
        (['a.jpg,x,"5 inch', 'c.jpg,y,7"'], [2, 3]),
        # With another number of fields than the header, and with blank lines between.
        (['a.jpg,"x', 'b.jpg,y,F"'], [2, 3]),
        (['a.jpg,x,"5 inch', "", "b.jpg,y,F", " ", 'c.jpg,y,7"'], [2, 4, 6]),
        # A quoted value in a swallowed row.
        (['a.jpg,x,"5 inch', 'b.jpg,"",F', 'c.jpg,y,7"'], [2, 3, 4]),
    ],
)
def test_rows_that_a_quote_closed_by_chance_has_joined_are_each_refused(
    lines: list[str], expected: list[int], read: Callable[[str], list[Row | Refusal]]
) -> None:
    *refused, last = read(HEADER + "\n".join([*lines, "z.jpg,z,F"]))
    assert told(refused) == [(line, "ragged_row") for line in expected]
    assert told([last]) == [(2 + len(lines), "z.jpg")]
    for refusal in refused:
        assert isinstance(refusal, Refusal)
        assert refusal.found == lines[(refusal.line or 0) - 2]
        assert f"the record of lines 2 to {1 + len(lines)} may be several rows" in refusal.message


@pytest.mark.parametrize("caption", ["two\nlines", "one, and\nanother", "see\nb.jpg,then,F\nend", "a\n\n"])
def test_a_text_with_a_line_that_is_no_row_stays_one_row(
    caption: str, read: Callable[[str], list[Row | Refusal]]
) -> None:
    rows = [["a.jpg", caption, "M"], ["b.jpg", "x", "F"]]
    assert [item.values["cap"] for item in read(HEADER + written(rows, "\n")) if isinstance(item, Row)] == [
        caption,
        "x",
    ]


def test_empty_columns_of_a_spreadsheet_are_left_out(read: Callable[[str], list[Row | Refusal]]) -> None:
    assert read(",photo,sex,,\n1,a.jpg,M,,\n") == [Row(2, {"photo": "a.jpg", "sex": "M"})]


@pytest.mark.parametrize("header", ["photo,sex,sex", "photo,,", ",photo,sex,,photo"])
def test_a_column_that_is_there_twice_or_not_at_all_is_an_error(
    header: str, read: Callable[[str], list[Row | Refusal]]
) -> None:
    with pytest.raises(DatasetError, match=r"t\.csv, line 3"):
        read(f"\n \r\n{header}\na.jpg,M,,\n")


def test_a_column_that_nothing_reads_may_be_there_twice(read: Callable[[str], list[Row | Refusal]]) -> None:
    assert told(read("note,photo,sex,note\nx,a.jpg,M,y\n")) == [(2, "a.jpg")]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"file,gender\r\na.jpg,M\r\n", "file,gender"),
        ("Übung\n".encode("latin-1"), r"\\xdcbung"),
        ("photo\tsex\n".encode("utf-16"), "\\\\xff\\\\xfep\\\\u0000"),
        (b"", "nothing"),
    ],
)
def test_a_first_line_without_the_columns_is_told_as_it_stands(
    content: bytes, found: str, read: Callable[[bytes], list[Row | Refusal]]
) -> None:
    with pytest.raises(DatasetError, match="restore the first line of the published file") as caught:
        read(content)
    assert re.match(found, str(caught.value.found)) and "b'" not in str(caught.value)


@pytest.mark.parametrize("blank", ["\n", "\ufeff\r\n\r\n", " \n\n\n"])
def test_blank_lines_before_the_column_names_count_as_lines(
    blank: str, read: Callable[[str], list[Row | Refusal]]
) -> None:
    assert told(read(f"{blank}{HEADER}a.jpg,x,M\n")) == [(2 + blank.count("\n"), "a.jpg")]


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_index_of_nothing_is_an_error(content: str, read: Callable[[str], list[Row | Refusal]]) -> None:
    with pytest.raises(DatasetError, match=r"t\.csv, line 1"):
        read(content)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # The quote closes nowhere.
        (['a.jpg,"x,M', "b.jpg,y,F", "c.jpg,z,F"], [(2, "ragged_row"), (3, "b.jpg"), (4, "c.jpg")]),
        # The next quote opens a value of its own, so it cannot close this one.
        (['a.jpg,"x,M', 'b.jpg,"y",F', "c.jpg,z,F"], [(2, "ragged_row"), (3, "b.jpg"), (4, "c.jpg")]),
        (['a.jpg,"x" y,M', "b.jpg,y,F"], [(2, "ragged_row"), (3, "b.jpg")]),
        (['"', "b.jpg,y,F", "", "c.jpg,z,F"], [(2, "ragged_row"), (3, "b.jpg"), (5, "c.jpg")]),
        (['a.jpg,"x,M', 'b.jpg,"y,F', "c.jpg,z,F"], [(2, "ragged_row"), (3, "ragged_row"), (4, "c.jpg")]),
        # It closes as it must, with another number of values: one record, refused as one.
        (['a.jpg,"x', 'y,F"', "c.jpg,z,F"], [(2, "ragged_row"), (4, "c.jpg")]),
    ],
)
def test_a_stray_quote_spoils_its_own_line_and_no_other(
    lines: list[str], expected: list[tuple[object, ...]], read: Callable[[str], list[Row | Refusal]]
) -> None:
    assert told(read(HEADER + "\n".join(lines))) == expected


@pytest.mark.parametrize("rows", [20_000, 60_000])
def test_an_open_quote_at_the_head_of_a_long_file_costs_one_row(
    rows: int, read: Callable[[str], list[Row | Refusal]]
) -> None:
    """More bytes than one value may have, then more than one record may."""
    first, *others = read(HEADER + 'a.jpg,"x,M\n' + "b.jpg,some words more,F\n" * rows)
    assert isinstance(first, Refusal)
    assert told(others) == [(line, "b.jpg") for line in range(3, 3 + rows)]


@pytest.mark.parametrize(("width", "lines"), [(1000, 3000), (1, 30_000)])
def test_quotes_that_open_again_on_every_line_are_gone_through_once(
    width: int, lines: int, read: Callable[[str], list[Row | Refusal]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line closes a value and opens the next: no value is long, the record would have no end."""
    decoded = 0
    really = csv_index_module._text

    def counted(line: RawLine) -> str:
        nonlocal decoded
        decoded += 1
        return really(line)

    monkeypatch.setattr(csv_index_module, "_text", counted)
    items = read(HEADER + ("x" * width + '","y\n') * lines + 'a.jpg,"y",F\n')
    assert told(items) == [*((line, "ragged_row") for line in range(2, 2 + lines)), (2 + lines, "a.jpg")]
    assert decoded <= 2 * lines + 3
    if width * lines > MAX_LINE_BYTES:
        assert isinstance(items[0], Refusal)
        assert "a record of more than" in str(items[0].found)


def test_messages_name_the_lines_of_a_record(read: Callable[[str | bytes], list[Row | Refusal]]) -> None:
    ragged, encoded = read(HEADER.encode() + b'a.jpg,"two\nlines"\nb.jpg,"two\n\xe9",F\n')
    assert isinstance(ragged, Refusal) and isinstance(encoded, Refusal)
    assert (ragged.line, ragged.code, ragged.found) == (2, "ragged_row", "2 fields: a.jpg,two\\u000alines")
    assert ragged.message == "the record of lines 2 to 3 has another number of fields (t.csv, line 2)"
    assert (encoded.line, encoded.code) == (4, "wrong_encoding")
    assert encoded.message == "the record of lines 4 to 5 is not UTF-8 (t.csv, line 4)"


@pytest.mark.parametrize("header", ['photo,"ca\np",sex\n', '\ufeff"photo",sex\r\n'])
def test_column_names_may_be_quoted_too(header: str, read: Callable[[str], list[Row | Refusal]]) -> None:
    values = "a.jpg,x,M" if "ca" in header else "a.jpg,M"
    assert told(read(header + values)) == [(header.count("\n") + 1, "a.jpg")]


def test_an_open_quote_in_the_header_is_an_error_of_the_whole(read: Callable[[str], list[Row | Refusal]]) -> None:
    with pytest.raises(DatasetError, match=r"t\.csv, line 1"):
        read('photo,"cap,sex\na.jpg,x,M\n')


def test_a_mapped_folder_gives_the_rows_after_a_long_caption_their_own_labels(
    tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    rows = [["photo", "cap", "sex"], ["a.jpg", "see\nb.jpg,then,F\nend", "M"], ["b.jpg", "x", "M"]]
    (tmp_path / "t.csv").write_text(written(rows, "\n"))
    for seed, name in enumerate("ab"):
        (tmp_path / f"{name}.jpg").write_bytes(jpeg(seed))
    own_words = {"gender": {"M": "man", "F": "woman"}}
    columns = {"gender": "sex"}
    column_map = ColumnMap(index="t.csv", path="photo", columns=columns, values=own_words, min_shown=1)
    ingested = ingest(reader_for("folder", column_map), tmp_path, dataset="own")
    assert ingested.listed == 2
    assert ingested.records.select("path", "gender").rows() == [("a.jpg", "man"), ("b.jpg", "man")]
