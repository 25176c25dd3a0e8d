"""Rows of the same picture: one is kept where they agree on who is shown, none where they do not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.ingestion import Accepted, ingest, resolve_duplicates
from plumbline.datasets.records import CONTEXT_COLUMNS, LABEL_COLUMNS, Entry, Ingested, Refusal
from plumbline.datasets.registry import reader_for

PERSON = [column for column in LABEL_COLUMNS if column not in CONTEXT_COLUMNS]
ONE = dict.fromkeys(LABEL_COLUMNS, "x")


def row(line: int, labels: dict[str, str], *, path: str = "a.jpg", image_id: str = "1") -> Accepted:
    return Accepted(Entry(path, None, {}, "t.csv", line), labels, image_id)


def codes(*items: Accepted | Refusal) -> list[str | None]:
    return [item.code if isinstance(item, Refusal) else None for item in resolve_duplicates(items)]


def test_the_columns_of_context_are_those_that_say_nothing_of_the_person() -> None:
    assert set(PERSON) == {"gender", "race", "age", "age_group", "occupation", "physical", "label"}
    assert set(CONTEXT_COLUMNS) < set(LABEL_COLUMNS)


@pytest.mark.parametrize("column", LABEL_COLUMNS)
@pytest.mark.parametrize("path", ["a.jpg", "b.jpg"])
@pytest.mark.parametrize("other", ["y", None])
def test_another_context_has_a_row_of_its_own_and_another_person_refuses_both(
    column: str, path: str, other: str | None
) -> None:
    changed = {**ONE, column: other}
    labels = {name: value for name, value in changed.items() if value is not None}
    first, second = resolve_duplicates([row(2, ONE), row(3, labels, path=path)])
    if column in CONTEXT_COLUMNS:
        assert (first, second) == (row(2, ONE), row(3, labels, path=path))
    else:
        assert isinstance(first, Refusal)
        assert isinstance(second, Refusal)
        assert (second.path, second.line, second.stage) == (path, 3, "duplicates")
        assert "t.csv, line 3" in second.message
        assert first.code == second.code == "conflicting_duplicate"


def test_each_later_row_is_compared_with_the_kept_one_of_its_context() -> None:
    scenes = ("office", "office", "car", "car", "office")
    rows = [row(2 + place, {**ONE, "scene": scene}) for place, scene in enumerate(scenes)]
    assert codes(*rows) == [None, "duplicate_row", None, "duplicate_row", "duplicate_row"]
    elsewhere = [item._replace(entry=Entry(f"{place}.jpg", None, {})) for place, item in enumerate(rows)]
    assert codes(*elsewhere) == [None, "duplicate", None, "duplicate", "duplicate"]
    last = resolve_duplicates(elsewhere)[3]
    assert isinstance(last, Refusal)
    assert last.expected == "one copy; kept: 2.jpg"


def test_two_people_under_one_picture_refuse_it_whatever_the_context() -> None:
    rows = [row(2, ONE), row(3, {**ONE, "scene": "car"}), row(4, {**ONE, "race": "y"})]
    assert codes(*rows) == ["conflicting_duplicate"] * 3


LABELS = st.fixed_dictionaries({}, optional=dict.fromkeys(("race", "scene", "caption"), st.sampled_from("xy")))


@given(st.lists(st.tuples(LABELS, st.sampled_from("ab"), st.sampled_from("12")), max_size=8))
def test_the_rule_is_the_one_that_pairs_of_rows_give(drawn: list[tuple[dict[str, str], str, str]]) -> None:
    """The slow, obvious way: ask each row about every other of its picture."""
    items = [row(line, labels, path=path, image_id=image) for line, (labels, path, image) in enumerate(drawn)]

    def person(item: Accepted) -> str | None:
        return item.labels.get("race")

    expected: list[str | None] = []
    for place, item in enumerate(items):
        same = [other for other in items if other.image_id == item.image_id]
        first = next(other for other in same if other.labels == item.labels)
        if any(person(one) != person(other) for one, other in itertools.combinations(same, 2)):
            expected.append("conflicting_duplicate")
        elif item is first:
            expected.append(None)
        else:
            expected.append("duplicate_row" if item.entry.path == first.entry.path else "duplicate")
        assert items[place] is item
    assert codes(*items) == expected


def captioned(root: Path, lines: list[str], jpeg: Callable[..., bytes]) -> Ingested:
    (root / "t.csv").write_text("\n".join(["photo,cap,sex", *lines]))
    for seed, name in enumerate("ab"):
        (root / f"{name}.jpg").write_bytes(jpeg(seed))
    column_map = ColumnMap(index="t.csv", path="photo", columns={"caption": "cap", "gender": "sex"})
    return ingest(reader_for("folder", column_map), root, dataset="own")


def test_a_picture_with_several_captions_keeps_them_all_and_every_row_is_accounted_for(
    tmp_path: Path, jpeg: Callable[..., bytes]
) -> None:
    lines = ["a.jpg,a dog,man", "a.jpg,a black dog,man", "b.jpg,a cat,man", "a.jpg,a dog,man"]
    ingested = captioned(tmp_path, lines, jpeg)
    assert ingested.listed == 4
    assert ingested.records.select("path", "caption").rows() == [
        ("a.jpg", "a dog"),
        ("a.jpg", "a black dog"),
        ("b.jpg", "a cat"),
    ]
    assert ingested.quarantine.select("line", "code", "found").rows() == [(5, "duplicate_row", "a.jpg")]
