"""An audit that version 0.5 kept is still compared and exported: `version_0_5` holds a few of its rows."""

import os
import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml
from rich.console import Console

from assets.audit_comparison import compare_audits
from assets.export import export_audit
from orchestration.compared import compare
from orchestration.export_commands import report_of
from plumbline.catalog.schema import POWER, polars_schema, row_ids
from plumbline.errors import ConfigError, StorageError
from plumbline.metrics.family import former_metric_names
from plumbline.metrics.registry import current_table
from plumbline.provenance.forms import verify_folder
from plumbline.storage.lake import recorded_audits, write_record
from resources.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    """Return a home whose lake is that of version 0.5."""
    shutil.copytree(Path(__file__).parent / "version_0_5" / "lake", tmp_path / "home" / "lake")
    kept = Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")
    (record,) = recorded_audits_of(tmp_path)
    kept.audit_path.write_text(yaml.safe_dump(record))
    return kept


def recorded_audits_of(folder):
    """Return the settings of each recorded audit."""
    import json

    manifests = (folder / "home" / "lake" / "audit_record").glob("*/manifest.json")
    return [json.loads(path.read_text("utf-8"))["details"]["settings"] for path in manifests]


def audited_again(workspace, **changed):
    """Record an audit of this version with the same rows, of which some columns are changed; return both ids."""
    lake, (old,) = workspace.lake, recorded_audits(workspace.lake)
    rows = current_table(lake.read_table("metric_table")).with_columns(**changed)
    made = lake.write_table("metric_table", rows, details=lake.require("metric_table").details)
    record = {"audit_id": "f" * 64, "made_at": "2030-01-01T00:00:00+00:00"}
    write_record(lake, [made], **record, settings=workspace.of_audit(old).past.settings, software={})
    return old, "f" * 64


def test_its_table_lacks_a_column_of_today(workspace):
    (old,) = recorded_audits(workspace.lake)
    table = workspace.of_audit(old).lake.read_table("metric_table")
    assert set(polars_schema()) - set(table.columns) == {"reason_codes", *POWER} and table["reason"].drop_nulls().len()


def test_the_export_has_every_row_and_every_column(workspace, tmp_path):
    (old,) = recorded_audits(workspace.lake)
    past = workspace.of_audit(old)
    export_audit(past, tmp_path / "bundle", report=None)
    assert verify_folder(tmp_path / "bundle").passed
    table = pl.read_parquet(tmp_path / "bundle" / "metric_table.parquet")
    assert set(polars_schema()) <= set(table.columns)
    assert table["row_id"].to_list() == row_ids(past.lake.read_table("metric_table")).to_list()


def test_it_is_compared_with_an_audit_of_today(workspace):
    skew = (pl.col("metric") == "max_skew") & (pl.col("dataset") == "fairface")
    of_cell = pl.col("dataset") == "fairface"
    ids = audited_again(
        workspace,
        value=pl.when(skew).then(pl.col("value") + 1).otherwise("value"),
        cell_id=pl.when(of_cell).then(pl.lit("another")).otherwise("cell_id"),
    )
    differences = compare_audits(workspace, *ids).differences
    moved = differences.filter(pl.col("value") > 0.5)
    assert moved.height and set(moved["metric"]) == {"max_skew"}
    assert set(differences["dataset"]) == {"fairface"}, "text spaces are as they were"


def test_a_text_space_with_the_same_numbers_is_no_change(workspace):
    ids = audited_again(workspace, cell_id=pl.lit("another"))
    assert "text" not in set(compare_audits(workspace, *ids).differences["dataset"])


def test_audits_of_other_models_are_refused_rather_than_found_alike(workspace):
    old, new = audited_again(workspace, model=pl.lit("another"))
    with pytest.raises(ConfigError, match="no model on a dataset in common"):
        compare(workspace, old, new, console=Console(quiet=True))


RENAMED = former_metric_names()


@pytest.fixture
def renamed(workspace):
    """Return a home whose old audit has rows of every metric that has another name now."""
    lake, (old,) = workspace.lake, recorded_audits(workspace.lake)
    rows = lake.read_table("metric_table").filter(dataset="fairface")
    named = [row | {"metric": name} for name, row in zip(RENAMED, rows.head(1).to_dicts() * len(RENAMED))]
    table = pl.concat([lake.read_table("metric_table"), pl.DataFrame(named, schema=rows.schema)])
    past = workspace.of_audit(old).past
    made = lake.write_table("metric_table", table, details=lake.require("metric_table").details)
    lvlms = {"answers": {"address": "local-dir:x", "twin": "words"}, "words": {"address": "local-dir:y"}}
    write_record(
        lake,
        [made, lake.require("provenance")],
        audit_id=old,
        made_at=past.made_at,
        settings=past.settings | {"lvlms": lvlms},
        software={},
    )
    return workspace


def test_rows_of_renamed_metrics_are_exported_by_their_name_of_today(renamed, tmp_path):
    (old,) = recorded_audits(renamed.lake)
    past = renamed.of_audit(old)
    export_audit(past, tmp_path / "bundle", report=None)
    metrics = set(pl.read_parquet(tmp_path / "bundle" / "metric_table.parquet")["metric"])
    assert metrics >= set(RENAMED.values()) and not metrics & set(RENAMED)
    assert past.audit.lvlms["answers"].base_llm == "words"


def test_rows_of_renamed_metrics_are_compared_with_those_of_today(renamed):
    moved = pl.col("metric").is_in(list(RENAMED.values()))
    ids = audited_again(
        renamed, value=pl.when(moved).then(pl.col("value") + 1).otherwise("value"), cell_id=pl.lit("another")
    )
    differences = compare_audits(renamed, *ids).differences.filter(
        pl.col("metric").is_in([*RENAMED, *RENAMED.values()])
    )
    assert set(differences["metric"]) == set(RENAMED.values())
    assert differences["value"].to_list() == pytest.approx([1.0] * len(RENAMED))


# --- A home that somebody else made: nothing is written outside of the folder, and nothing read from outside of it.


def with_report(workspace, audit_id):
    """Lay a report and an explanation where an audit would have."""
    workspace.report.write_text(f"audit <code>{audit_id[:12]}</code>")
    folder = workspace.report.parent / "explanations" / audit_id[:12]
    folder.mkdir(parents=True)
    (folder / "0ec4.html").write_text("why")
    return folder


def test_explanations_come_along(workspace, tmp_path):
    (audit_id,) = recorded_audits(workspace.lake)
    with_report(workspace, audit_id)
    report = report_of(workspace, audit_id)
    files = export_audit(workspace.of_audit(audit_id), tmp_path / "bundle", report=report)
    assert {"report.html", f"explanations/{audit_id[:12]}/0ec4.html"} <= {*files}
    assert verify_folder(tmp_path / "bundle").passed


def test_a_title_is_no_markup_in_the_readme_of_an_export(workspace, tmp_path):
    (audit_id,) = recorded_audits(workspace.lake)
    past = workspace.of_audit(audit_id)
    object.__setattr__(past.audit, "title", "My <b>audit</b> [of](x)")
    export_audit(past, tmp_path / "bundle", report=None)
    assert (tmp_path / "bundle" / "README.md").read_text().startswith("# My \\<b\\>audit\\</b\\> \\[of\\](x)\n")


@pytest.mark.parametrize("name", ["../../own", "../README", "/{tmp}/own", "a/./b", "a\x1b]0;b", "a\\..\\b"])
def test_a_model_whose_name_leads_elsewhere_is_refused_and_nothing_is_written(workspace, tmp_path, name):
    own = tmp_path / "own.md"
    own.write_text("mine")
    _, forged = audited_again(workspace, model=pl.lit(name.format(tmp=tmp_path)))
    before = {*tmp_path.rglob("*")}
    with pytest.raises(StorageError, match="would not lie inside its folder"):
        export_audit(workspace.of_audit(forged), tmp_path / "below" / "bundle", report=None)
    assert own.read_text() == "mine" and {*tmp_path.rglob("*")} == before


SPOILT = {
    "a link to a file": lambda folder, out: (folder / "more.html").symlink_to(out / "key"),
    "a link to a folder": lambda folder, out: (folder / "more").symlink_to(out),
    "a pipe": lambda folder, out: os.mkfifo(folder / "more.html"),
    "the folder itself": lambda folder, out: (shutil.rmtree(folder), folder.symlink_to(out)),
    "the folder above": lambda folder, out: (shutil.rmtree(folder.parent), folder.parent.symlink_to(out)),
    "the folder is a pipe": lambda folder, out: (shutil.rmtree(folder), os.mkfifo(folder)),
    "a name with a line end": lambda folder, out: (folder / "a\nb").touch(),
    "a name that is no text": lambda folder, out: (folder / os.fsdecode(b"\xff")).touch(),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_explanations_that_are_no_plain_files_are_refused_before_anything_is_copied(workspace, tmp_path, spoil):
    (audit_id,) = recorded_audits(workspace.lake)
    out = tmp_path / "private"
    (out / audit_id[:12]).mkdir(parents=True)
    (out / "key").write_text("secret")
    spoil(with_report(workspace, audit_id), out)
    with pytest.raises(StorageError):
        export_audit(workspace.of_audit(audit_id), tmp_path / "bundle", report=report_of(workspace, audit_id))
    assert not (tmp_path / "bundle").exists() and not (tmp_path / ".bundle.partial").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")], ids=["pipe", "link"])
def test_a_report_that_is_no_plain_file_is_never_read(workspace, tmp_path, make):
    (audit_id,) = recorded_audits(workspace.lake)
    make(workspace.report)
    with pytest.raises(StorageError, match="no plain file"):
        report_of(workspace, audit_id)
    with pytest.raises(StorageError, match="no plain file"):
        export_audit(workspace.of_audit(audit_id), tmp_path / "bundle", report=workspace.report)
    assert not (tmp_path / ".bundle.partial").exists()
