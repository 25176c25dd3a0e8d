"""The ten lines of the front page, with a small folder and a planted checkpoint in place of the reader's own."""

import csv
import re

import pytest
from fenced_blocks import blocks
from typer.testing import CliRunner

from documentation.repository_pages import PROJECT
from orchestration.command_line import app
from plumbline.catalog.suites import suite_names
from plumbline.commands import terminal
from plumbline.config.file import read_audit
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
    assert sorted(ingested.records["gender"]) == [*["man"] * 12, *["woman"] * 12]
    assert set(ingested.records["race"]) == set(ORIGINS)


def test_its_data_and_model_are_looked_at_before_anything_is_computed(own):
    ran = CliRunner().invoke(app, ["check", "--config", str(own.audit_path)])
    assert ran.exit_code == 0, (ran.stdout, ran.exception)
    for said in (
        f"staff: {PEOPLE} images listed, {PEOPLE} looked at",
        "gender: man 12, woman 12",
        "race: Allgäu 8, Wien 8, north shore 8",
        f"{PEOPLE} images with labels of both are in no group of gender × race: the group has fewer images than",
        "Found by 80% of such audits",
        "Nothing stands against this audit.",
    ):
        assert said in ran.stdout
    assert not own.home.exists(), "a look leaves nothing"
    assert re.search(rf"staff \| race +3 +{PEOPLE} +8 +not told +", ran.stdout)


def test_values_that_the_map_does_not_name_are_told_with_their_key(own):
    table = own.dataset_root("staff") / "people.csv"
    rows = table.read_text().splitlines()
    rows[1:13] = [row.replace(",M,", ",X,").replace(",F,", ",F ,") for row in rows[1:13]]
    rows[13] = rows[13].replace(",M,", ",quokka,")
    table.write_text("\n".join(rows) + "\n")
    ran = CliRunner().invoke(app, ["check", "--config", str(own.audit_path)])
    told = "13 images are in no group of gender: `datasets.staff.map.values.gender` does not name"
    assert f"{told} `X` (6 rows); `F ` (6 rows; did you mean `F`?); 1 value of fewer than 5 rows" in ran.stdout
    assert "quokka" not in ran.stdout, "a value of few people tells of them"
    rows[1:] = [row.replace(",F,", ",Z,").replace(",F ,", ",Z,") for row in rows[1:]]
    table.write_text("\n".join(rows) + "\n")
    ran = CliRunner().invoke(app, ["check", "--config", str(own.audit_path)])
    assert "gender: one group of it is left, so that it is not compared\n" in ran.stdout, "min_shown would not help"


def test_what_would_refuse_it_is_said_with_place_limit_and_key(own):
    folder = own.dataset_root("staff")
    for person in (1, 3):
        (folder / f"{person}.jpg").write_text("no image")
    (folder / "people.csv").write_text((folder / "people.csv").read_text().replace("F,", ",", 6))
    checkpoint = own.audit.encoders["mine"].address
    text = own.audit_path.read_text().replace(checkpoint, f"local-dir:{folder}")
    own.audit_path.write_text(text.replace("encoders:", "    balance: {gender: [0.40, 0.60]}\nencoders:", 1))
    ran = CliRunner().invoke(app, ["check", "--config", str(own.audit_path)])
    assert ran.exit_code == 2
    for said in (
        "refused, not_an_image: 2, such as 1.jpg: the content is not an image (people.csv, line 3)",
        "8.3% of the images are refused; `datasets.staff.quarantine_rate` or `thresholds.quarantine_rate` allows",
        "66.7% of the images are `man`; `datasets.staff.balance.gender` asks for 40% to 60%",
        "4 images are in no group of gender: the table holds no value",
        "reason(s) why this audit would fail.",
    ):
        assert said in ran.stdout, ran.stdout
    assert re.search(rf"staff \| race +3 +{PEOPLE - 2} +7 ", ran.stdout), "without the two that cannot be read"
