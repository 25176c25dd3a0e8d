"""The ten lines of the front page, with a small folder and a planted checkpoint in place of the reader's own."""

import csv

import pytest
from fenced_blocks import blocks
from typer.testing import CliRunner

from documentation.repository_pages import PROJECT
from orchestration import terminal
from orchestration.command_line import app
from plumbline.catalog.suites import suite_names
from plumbline.config.file import read_audit
from plumbline.datasets.extended import label_shares
from plumbline.datasets.ingestion import ingest
from resources.workspace import Workspace

FOLDER, CHECKPOINT = "/data/staff", "/data/my-clip"
PLANTED = PROJECT / "plumbline/world/checkpoints/small-bazaar-3k"
ORIGINS = ("Allgäu", "north shore", "Wien")
"""Free words: no label set is named in the block."""
PEOPLE = 24


@pytest.fixture
def own(tmp_path, jpeg, monkeypatch):
    """Return the workspace of the printed block, but for its two paths, beside the folder that it describes."""
    (block,) = (b for b in blocks(PROJECT / "README.md") if b.language == "yaml" and FOLDER in b.text)
    assert CHECKPOINT in block.text
    folder = tmp_path / "staff"
    folder.mkdir()
    with (folder / "people.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["photo", "sex", "origin"])
        for person in range(PEOPLE):
            (folder / f"{person}.jpg").write_bytes(jpeg(person))
            table.writerow([f"{person}.jpg", "MF"[person % 2], ORIGINS[person % 3]])
    path = tmp_path / "mine.yaml"
    path.write_text(block.text.replace(FOLDER, str(folder)).replace(CHECKPOINT, str(PLANTED)), "utf-8")
    monkeypatch.setenv("PLUMBLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLUMBLINE_AUDIT", "audit.yaml")  # what the option replaces, and a later test has back
    monkeypatch.setattr(terminal.console, "width", 200)
    return Workspace(audit_path=path, home=tmp_path / "home")


def test_the_block_is_read_and_says_what_is_audited(own):
    audit = read_audit(own.audit_path)
    assert audit.labeller == "mine", "the first encoder labels"
    (suites,) = audit.cells.values()
    assert list(audit.cells) == [("staff", "mine")]
    assert {"crime", "communion", "perception"} <= set(suites) <= set(suite_names())
    assert not audit.class_sets and "trident" not in suites


def test_its_plan_is_made(own):
    ran = CliRunner().invoke(app, ["plan", "--config", str(own.audit_path)])
    assert ran.exit_code == 0, (ran.stdout, ran.exception)
    assert f"{PEOPLE} images to embed" in ran.stdout and "staff" in ran.stdout and "mine" in ran.stdout


def test_its_records_are_read_with_the_words_of_both_sides(own):
    entry = own.dataset_entry("staff")
    ingested = ingest(entry.open_reader(), own.dataset_root("staff"), dataset="staff")
    assert (ingested.listed, ingested.records.height) == (PEOPLE, PEOPLE)
    shares = label_shares(ingested.records, entry.open_reader().declaration, entry.balance, composite=False)
    assert shares.select("label", "n").rows() == [("man", 12), ("woman", 12)]
    assert set(ingested.records["race"]) == set(ORIGINS)
