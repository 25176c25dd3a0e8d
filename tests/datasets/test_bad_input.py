"""The table "Bad input, and what it gets": each row, through a whole ingestion, beside two sound images."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bad_input_rows import DECODED_RIGHT, HEADER, LABELS, QUARANTINED, SOUND, WORDS
from written_pictures import encoded, noise

from plumbline.datasets.ingestion import ingest
from plumbline.datasets.preview import preview
from plumbline.datasets.records import Ingested
from plumbline.datasets.registry import reader_for
from plumbline.images.decoding import decode


def write_folder(root: Path, line: bytes, *, header: bytes = HEADER, ending: bytes = b"\n") -> None:
    (root / "val").mkdir(parents=True)
    (root / "val/1.jpg").write_bytes(encoded(noise(1), "JPEG"))
    (root / "val/3.jpg").write_bytes(encoded(noise(3), "JPEG"))
    (root / "fairface_label_val.csv").write_bytes(ending.join([header, SOUND[0], line, SOUND[1], b""]))


def ingest_fairface(root: Path) -> Ingested:
    return ingest(reader_for("fairface"), root, dataset="faces", workers=2)


def only_refusal(ingested: Ingested) -> dict[str, object]:
    """Return the one quarantine row, after checking that everything else was accepted."""
    assert ingested.listed == 3
    assert ingested.records["path"].to_list() == ["val/1.jpg", "val/3.jpg"]
    return ingested.quarantine.row(0, named=True)


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    """Plant the refusal on both ways in which ingestion opens a file."""

    def refusing(really_open: Callable[..., object]) -> Callable[..., object]:
        def unless_named(path: object, *arguments: object, **options: object) -> object:
            if str(path).endswith(name):
                raise error
            return really_open(path, *arguments, **options)

        return unless_named

    monkeypatch.setattr(Path, "open", refusing(Path.open))
    monkeypatch.setattr(os, "open", refusing(os.open))


@pytest.mark.parametrize("row", QUARANTINED)
def test_bad_input_is_quarantined_with_line_found_and_expected_and_stops_nothing(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, root = QUARANTINED[row], tmp_path / "root"
    write_folder(root, bad.line or bad.name.encode() + b"," + LABELS)
    (tmp_path / "outside.jpg").write_bytes(encoded(noise(2), "JPEG"))
    if bad.data is not None:
        (root / bad.name).write_bytes(bad.data)
    if bad.link is not None:
        (root / bad.name).symlink_to(bad.link)
    if bad.refused_by is not None:
        refuse_to_open(monkeypatch, bad.name, bad.refused_by)
    ingested = ingest_fairface(root)
    if bad.takes:
        assert ingested.listed == 3
        assert ingested.records["path"].to_list() == ["val/3.jpg"]
        assert ingested.quarantine.select("path", "line", "code").row(0) == ("val/1.jpg", 2, bad.code)
        assert "East Asian" in ingested.quarantine["found"][0]
        refusal = ingested.quarantine.row(1, named=True)
    else:
        refusal = only_refusal(ingested)
    assert (refusal["code"], refusal["stage"], refusal["line"]) == (bad.code, bad.stage, 3)
    at_index = bad.code in ("ragged_row", "wrong_encoding")
    default = "fairface_label_val.csv" if at_index else bad.name
    assert refusal["path"] == (default if bad.path is None else bad.path)
    assert refusal["dataset"] == "faces"
    assert "fairface_label_val.csv, line 3" in str(refusal["message"])
    assert bad.found in str(refusal["found"])
    assert bad.expected in str(refusal["expected"])
    assert refusal["expected"]
    # Seen beforehand, as `plumbline check` does, the same rows are refused, each once.
    seen = preview(reader_for("fairface"), root, dataset="faces", balance={}, most_refused=1.0)
    assert (
        seen.refused.select("path", "line").sort("line").equals(ingested.quarantine.select("path", "line").sort("line"))
    )
    assert seen.refused_share == pytest.approx(ingested.quarantine.height / ingested.listed)


@pytest.mark.parametrize("row", DECODED_RIGHT)
def test_what_can_be_decoded_right_is_accepted(row: str, tmp_path: Path) -> None:
    sound = DECODED_RIGHT[row]
    line = f'"{sound.name}",20-29,Male,"Black",False'.encode()
    write_folder(tmp_path, line, header=sound.header, ending=sound.ending)
    (tmp_path / sound.name).write_bytes(sound.data)
    ingested = ingest_fairface(tmp_path)
    assert ingested.records["path"].to_list() == ["val/1.jpg", sound.name, "val/3.jpg"]
    assert ingested.records["race"].to_list() == ["East Asian", "Black", "White"]
    assert ingested.quarantine.is_empty()
    picture = decode(tmp_path / sound.name)
    assert (picture.mode, picture.size) == ("RGB", (16, 12))
    pixels = np.asarray(picture).astype(int)
    assert np.abs(pixels[6, 3] - sound.left).max() <= 3
    assert np.abs(pixels[6, 12] - sound.right).max() <= 3


@pytest.mark.parametrize("words", WORDS)
def test_every_row_of_the_table_has_a_case(words: str) -> None:
    assert any(case.startswith(words) for case in (*QUARANTINED, *DECODED_RIGHT))


def test_blank_lines_list_nothing_and_keep_the_line_numbers(tmp_path: Path) -> None:
    write_folder(tmp_path, b"\n  \nval/2.jpg," + LABELS)
    assert only_refusal(ingest_fairface(tmp_path))["line"] == 5


def test_a_folder_that_is_a_link_out_loses_all_its_images(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    write_folder(root, b"val/2.jpg," + LABELS)
    (root / "val").rename(outside)
    (root / "val").symlink_to(outside, target_is_directory=True)
    ingested = ingest_fairface(root)
    assert ingested.records.is_empty()
    assert ingested.quarantine["code"].to_list() == ["path_outside_root"] * 3


def test_a_link_that_stays_below_the_root_is_followed(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "kept.jpg").write_bytes(encoded(noise(2), "JPEG"))
    (tmp_path / "val/2.jpg").symlink_to("../kept.jpg")
    assert ingest_fairface(tmp_path).quarantine.is_empty()


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    (tmp_path / "val/2.jpg").symlink_to("2.jpg")
    assert only_refusal(ingest_fairface(tmp_path))["code"] == "unreadable"


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    write_folder(tmp_path, b"val/2.jpg," + LABELS)
    os.mkfifo(tmp_path / "val/2.jpg")
    assert only_refusal(ingest_fairface(tmp_path))["code"] == "not_a_file"


def test_every_column_of_the_quarantine_has_its_type_even_when_empty(tmp_path: Path) -> None:
    write_folder(tmp_path, b"")
    ingested = ingest_fairface(tmp_path)
    assert ingested.listed == 2
    assert ingested.quarantine.is_empty()
    assert ingested.quarantine.schema["line"] == pl.Int64
    assert set(ingested.records.schema.dtypes()) == {pl.String}
