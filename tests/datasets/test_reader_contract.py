"""What every reader keeps, on the planted folder of its kind: nothing lost, the right code, the true labels."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from plumbline.catalog.schema import QUARANTINE_SCHEMA
from plumbline.datasets.folder import ColumnMap
from plumbline.datasets.ingestion import dataset_digest, folder_digest, ingest
from plumbline.datasets.records import RECORD_SCHEMA, Entry, Ingested, Reader
from plumbline.datasets.registry import reader_for, reader_names
from plumbline.world import folders
from resources.checkout import PROJECT

DATASHEET = PROJECT / "docs" / "datasheet.md"
# Kinds that are another form of a dataset that has a reader already.
READER_OF = {"socialcounterfactuals_parquet": "socialcounterfactuals"}

CODES = {
    "cut off": "truncated",
    "leaves the root": "path_outside_root",
    "malformed name": "malformed_name",
    "missing file": "missing_file",
    "no bytes": "empty_file",
    "no caption": "missing_caption",
    "no partition": "missing_partition",
    "not downloaded": "not_downloaded",
    "same bytes, other gender": "conflicting_duplicate",
    "same bytes, other occupation": "conflicting_duplicate",
    "text": "not_an_image",
    "unknown occupation": "unknown_label",
    "unknown race": "unknown_label",
}
"""Planted fault, to the code that its files must be quarantined with."""

TRUE_COLUMNS = {
    "causalface": ("gender", "race"),
    "celeba": ("gender",),
    "coco": (),
    "fairface": ("gender", "race", "age"),
    "folder": ("gender", "race", "age", "occupation"),
    "idenprof": ("occupation",),
    "image_folder": ("label",),
    "img2dataset": (),
    "neutral": (),
    "pata": ("gender", "race", "age", "scene"),
    "socialcounterfactuals": ("gender", "race"),
    "socialcounterfactuals_parquet": ("gender", "race"),
    "utkface": ("gender", "race", "age", "age_group"),
}
"""What a reader says that stands in the planted truth too."""

CAPTIONS = {"coco": 2}
"""Rows of each image, where it is listed with several captions."""

OTHER_WORDS = {
    "Asian": {"East Asian", "Southeast Asian"},
    "Latino": {"Latino_Hispanic"},
    "Others": {"Middle Eastern", "Latino_Hispanic"},
    "black": {"Black"},
    "caucasian": {"White"},
    "eastasian": {"East Asian"},
    "hispanic": {"Latino_Hispanic"},
    "indian": {"Indian"},
}
"""A dataset's word where it is not the world's, to the world's words for it."""


@pytest.fixture(scope="session")
def planted(planted_base: Path) -> Path:
    return planted_base


def reader_of(kind: str) -> Reader:
    if kind == "folder":
        from plumbline.world.layouts import COLUMN_MAP

        return reader_for("folder", ColumnMap.model_validate(COLUMN_MAP))
    return reader_for(READER_OF.get(kind, kind))


def ingested_from(kind: str, planted: Path, *, workers: int = 2) -> Ingested:
    return ingest(reader_of(kind), folders.ensure(kind, planted), dataset="planted", workers=workers)


def test_every_reader_has_a_planted_kind() -> None:
    planted = {READER_OF.get(kind, kind) for kind in folders.KINDS}
    wanted = set(reader_names()) - {"counts", "listing"}
    assert planted == wanted, "a reader needs a writer in `LAYOUTS` of plumbline/world/folders.py: see CONTRIBUTING.md"


@pytest.mark.parametrize("kind", folders.KINDS)
def test_accepted_and_quarantined_are_listed_and_are_what_was_planted(kind: str, planted: Path) -> None:
    ingested = ingested_from(kind, planted)
    truth = pl.read_csv(folders.ensure(kind, planted).parent / folders.TRUTH_FILE)
    assert ingested.records.height + ingested.quarantine.height == ingested.listed
    captions = CAPTIONS.get(kind, 1)
    assert sorted(ingested.records["path"]) == sorted([*truth["path"]] * captions)
    codes = dict(ingested.quarantine.select("path", "code").iter_rows())
    assert codes == {path: CODES[fault] for path, fault in folders.bad_files(kind).items()}
    assert len(codes) == ingested.quarantine.height


@pytest.mark.parametrize("kind", folders.KINDS)
def test_the_datasheet_counts_what_is_drawn(kind: str, planted: Path) -> None:
    drawn = pl.read_csv(folders.ensure(kind, planted).parent / folders.TRUTH_FILE).height
    told = re.search(rf"`{kind}`[^|]*\| ([\d,]+) \|", DATASHEET.read_text("utf-8"))
    assert told is not None and told[1] == f"{drawn:,}"


@pytest.mark.parametrize("kind", folders.KINDS)
def test_tables_have_their_schemas_and_say_why(kind: str, planted: Path) -> None:
    ingested = ingested_from(kind, planted)
    own = ("gender_race",) if kind == "folder" else ()
    assert dict(ingested.records.schema) == RECORD_SCHEMA | dict.fromkeys(own, pl.String)
    assert dict(ingested.quarantine.schema) == QUARANTINE_SCHEMA
    assert ingested.records.select("image_id", "caption").is_unique().all()
    base = reader_of(kind).declaration.base_attribute
    assert base is None or ingested.records[base].null_count() == 0
    told = ingested.quarantine.select("path", "stage", "code", "message", "expected")
    assert told.null_count().sum_horizontal()[0] == 0
    if reader_of(kind).index_files(folders.ensure(kind, planted)):
        assert ingested.quarantine["line"].null_count() == 0


@pytest.mark.parametrize("kind", folders.KINDS)
def test_labels_are_the_true_ones(kind: str, planted: Path) -> None:
    records = ingested_from(kind, planted).records
    truth = pl.read_csv(folders.ensure(kind, planted).parent / folders.TRUTH_FILE, infer_schema=False)
    joined = records.join(truth, on="path", suffix="_true", validate="m:1")
    assert joined.height == records.height
    for column in TRUE_COLUMNS[kind]:
        said = joined.filter(pl.col(column).is_not_null())
        assert not said.is_empty()
        for word, true in said.select(column, f"{column}_true").unique().iter_rows():
            assert true in OTHER_WORDS.get(word, {word}), f"{column}: {word} is truly {true}"


@pytest.mark.parametrize("kind", folders.KINDS)
def test_a_second_reading_gives_the_same(kind: str, planted: Path) -> None:
    first, second = (ingested_from(kind, planted, workers=workers) for workers in (1, 3))
    assert dataset_digest(first.records, first.quarantine) == dataset_digest(second.records, second.quarantine)


@pytest.mark.parametrize("kind", folders.KINDS)
def test_every_entry_can_be_digested_and_names_a_place_below_the_root(kind: str, planted: Path) -> None:
    root = folders.ensure(kind, planted)
    reader = reader_of(kind)
    entries = [item for item in reader.entries(root) if isinstance(item, Entry)]
    indexes = set(reader.index_files(root))
    assert {entry.index for entry in entries} <= indexes | {None}
    assert all((entry.index is None) == (entry.line is None) for entry in entries)
    assert folder_digest(reader, root, workers=1) == folder_digest(reader, root, workers=3)
