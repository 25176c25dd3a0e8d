"""A folder of people, a table and a checkpoint, as somebody has them who runs the command."""

import csv

import pytest

from documentation.repository_pages import PROJECT
from plumbline.commands import terminal

PEOPLE = 30


@pytest.fixture
def here(tmp_path, jpeg, monkeypatch):
    """Return a folder that commands run in, with `staff/people.csv` and `staff/photos/`."""
    (tmp_path / "staff" / "photos").mkdir(parents=True)
    with (tmp_path / "staff" / "people.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["photo", "sex", "team", "badge"])
        for person in range(PEOPLE):
            (tmp_path / "staff" / "photos" / f"{person}.jpg").write_bytes(jpeg(person))
            table.writerow([f"{person}.jpg", "MFX"[person % 3], ["labs", "sales"][person % 2], f"b-{person}"])
    monkeypatch.chdir(tmp_path)
    for variable in ("PLUMBLINE_HOME", "PLUMBLINE_FOLDER", "PLUMBLINE_AUDIT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(terminal.console, "width", 200)
    return tmp_path


@pytest.fixture
def checkpoint():
    """Return the folder of a tiny checkpoint."""
    return PROJECT / "plumbline/world/checkpoints/small-bazaar-3k"
