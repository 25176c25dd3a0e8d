"""The reader of neutral portraits: every file is one, none has a label."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.records import LABEL_COLUMNS
from plumbline.datasets.registry import reader_for
from plumbline.errors import DatasetError


def test_every_file_is_listed_and_none_has_a_label(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    (tmp_path / "more").mkdir()
    names = ["1.jpg", "more/zoë 李.jpg", "no name at all.jpeg"]
    for seed, name in enumerate(names):
        (tmp_path / name).write_bytes(jpeg(seed))
    (tmp_path / "notes.txt").write_text("drawn in 2024")
    ingested = ingest(reader_for("neutral"), tmp_path, dataset="neutral")
    assert ingested.listed == 4
    assert ingested.records["path"].to_list() == names
    assert all(ingested.records[column].is_null().all() for column in ("split", *LABEL_COLUMNS))
    assert ingested.quarantine.select("path", "code").rows() == [("notes.txt", "not_an_image")]


def test_without_labels_two_copies_never_disagree(tmp_path: Path, jpeg: Callable[..., bytes]) -> None:
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(jpeg())
    ingested = ingest(reader_for("neutral"), tmp_path, dataset="neutral")
    assert ingested.records["path"].to_list() == ["a.jpg"]
    assert ingested.quarantine["code"].to_list() == ["duplicate"]


def test_it_declares_no_attribute_that_could_be_audited() -> None:
    declaration = reader_for("neutral").declaration
    assert (declaration.base_attribute, declaration.class_set, declaration.rules) == (None, None, ())


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="neutral portraits"):
        ingest(reader_for("neutral"), tmp_path, dataset="neutral")
