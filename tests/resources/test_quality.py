"""Validations are kept, with pages; a context that another process has outdated is opened again."""

from pathlib import Path
from urllib.parse import unquote, urlparse

import jinja2
import polars as pl
import pytest

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


def test_the_context_is_opened_once_and_again_when_another_process_wrote(workspace, monkeypatch):
    opened, open_context = [], Quality._open
    monkeypatch.setattr(Quality, "_open", lambda self: (opened.append(self), open_context(self))[1])
    first, second = Quality(workspace), Quality(workspace)
    validate(first, "a.balance")
    validate(first, "a.balance")
    assert opened == [first]
    validate(second, "b.balance")
    validate(first, "c.balance")
    assert opened == [first, second], "a check writes the project's file no more"
    second._opened.context.data_sources.add_pandas("another")
    validate(first, "c.balance")
    assert opened == [first, second, first]
    project = (workspace.quality / "gx" / "great_expectations.yml").read_text()
    assert "another" in project and "plumbline" in project
    kept = {path.stem for path in (workspace.quality / "gx" / "validation_definitions").glob("*.json")}
    assert kept == {"a.balance", "b.balance", "c.balance"}


def test_the_templates_of_pages_are_compiled_once(workspace, monkeypatch):
    quality = Quality(workspace)
    first = page_of(validate(quality, "a.balance")).read_text()
    compiled, compile_one = [], jinja2.Environment.compile
    monkeypatch.setattr(jinja2.Environment, "compile", lambda *a, **k: (compiled.append(a), compile_one(*a, **k))[1])
    second = page_of(validate(quality, "b.balance")).read_text()
    assert not compiled
    assert len(second) == len(first) and "b.balance" in second


def test_a_check_that_failed_halfway_leaves_no_context_behind(workspace):
    quality = Quality(workspace)
    with pytest.raises(ZeroDivisionError):
        quality.validate("a.balance", pl.DataFrame({"share": [1]}), lambda gx: [1 / 0])
    assert quality._opened is None
    assert validate(quality, "a.balance").passed


def test_the_index_leads_to_the_pages_of_all_checks(workspace):
    quality = Quality(workspace)
    quality.index()
    pages = [page_of(validate(quality, name)) for name in ("a.balance", "b.balance")]
    index = next(parent for parent in pages[0].parents if parent.name == "local_site") / "index.html"
    assert not index.exists()
    Quality(workspace).index()
    text = unquote(index.read_text())
    assert all(str(page.relative_to(index.parent)) in text for page in pages)
