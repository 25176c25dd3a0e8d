"""Validations are kept with pages, each written whole; nothing that Great Expectations writes itself is read again."""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import polars as pl
import pytest

from plumbline.errors import StorageError
from resources.quality import Quality
from resources.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "audit.yaml").write_text('{"labeller": "e", "datasets": {}, "encoders": {}, "audit": []}')
    return Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")


def validate(quality, name, values=(1, 2)):
    return quality.validate(
        name,
        pl.DataFrame({"share": list(values)}),
        lambda gx: [gx.ExpectColumnValuesToBeBetween(column="share", max_value=2)],
    )


def page_of(outcome):
    return Path(unquote(urlparse(outcome.docs).path))


def test_an_unmet_expectation_says_on_what_and_what_was_seen(workspace):
    quality = Quality(workspace)
    assert validate(quality, "a.balance").passed
    outcome = validate(quality, "a.balance", (1, 7))
    assert not outcome.passed and outcome.expectations == 1
    assert outcome.unmet == [{"expectation": "column_values_to_be_between", "on": "share", "observed": "7"}]
    assert "share" in page_of(outcome).read_text()


def test_the_same_facts_keep_their_page_and_others_get_their_own(workspace):
    quality = Quality(workspace)
    first, again, other = (validate(quality, "a.balance", values) for values in ((1, 2), (1, 2), (1, 7)))
    assert first.docs == again.docs != other.docs
    assert page_of(first).is_file() and page_of(other).is_file()


def test_a_home_that_an_earlier_version_left_half_written_is_checked_all_the_same(workspace):
    """Great Expectations rewrites its project file in place: a kill in between left 0 bytes, for ever."""
    project = workspace.quality / "gx" / "great_expectations.yml"
    project.parent.mkdir(parents=True)
    project.write_bytes(b"")
    assert validate(Quality(workspace), "a.balance").passed
    assert project.read_bytes() == b""


def test_a_write_that_fails_leaves_what_was_there(workspace, monkeypatch):
    quality = Quality(workspace)
    page = page_of(validate(quality, "a.balance"))
    before = page.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="could not be written"):
        validate(quality, "a.balance")
    assert page.read_bytes() == before
    assert {path.suffix for path in workspace.quality.rglob("*") if path.is_file()} == {".html", ".json"}


def test_nothing_is_written_but_results_and_pages(workspace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    quality = Quality(workspace)
    validate(quality, "a.balance")
    quality.index()
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {str(path.parent.relative_to(workspace.quality)) for path in written} == {".", "pages", "results"}


def test_a_page_shows_what_was_observed_and_no_markup_from_outside(workspace):
    outcome = Quality(workspace).validate(
        "a.labels",
        pl.DataFrame({"label": ["<img src=x onerror=alert(1)>", "man"]}),
        lambda gx: [gx.ExpectColumnValuesToBeInSet(column="label", value_set=["man"])],
    )
    page = page_of(outcome).read_text()
    assert "&lt;img src=x onerror=alert(1)&gt;" in page and "<img" not in page and "<script" not in page
    assert "0 of 1 expectations met by\nthe table of 2 rows" in page and "default-src 'none'" in page


def test_the_index_leads_to_all_pages_and_names_what_is_damaged(workspace):
    quality = Quality(workspace)
    pages = [page_of(validate(quality, name)) for name in ("a.balance", "<b>.balance")]
    broken = workspace.quality / "results" / "c.json"
    broken.write_text(json.dumps({"name": "c"}))
    quality.index()
    index = workspace.quality / "index.html"
    text = index.read_text()
    links = [unquote(link.partition('"')[0]) for link in text.split('href="')[1:]]
    assert {index.parent / link for link in links} == set(pages)
    assert "c.json" in text and "<b>" not in text and "2 of 2" not in text and "1 of 1" in text
