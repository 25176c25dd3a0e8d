"""A whole audit as a folder to hand on: what was measured, from what, and checksums of all of it."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.findings import headline_reading
from assets.model_addresses import model_addresses
from plumbline.catalog.suites import all_suites
from plumbline.datasets.sources import HUB
from plumbline.errors import ConfigError
from plumbline.metrics.registry import current_table
from plumbline.provenance.export import SPECIFICATION, Material, bill_of_materials, provenance_statement
from plumbline.provenance.forms import (
    Exported,
    hub_dataset,
    plain_files,
    require_inside,
    require_plain,
    write_checksums,
    write_files,
    written,
)
from plumbline.report.html import explanations_folder
from plumbline.storage import Committed
from plumbline.storage.files import csv_bytes
from plumbline.version import __version__
from plumbline.visible import escaped
from resources.workspace import Workspace

PROVENANCE, REPORT, MATERIALS = "provenance.json", "report.html", "sbom.cdx.json"
_SOURCES = ("records", "text_embeddings", "image_embeddings", "generations", "toxicity_scores", "pictured_people")


def export_audit(workspace: Workspace, folder: Path, *, report: Path | None) -> list[str]:
    """Write the bundle of an audit of the past.

    Parameters
    ----------
    workspace : Workspace
        With the record of the audit as `past`.
    folder : Path
        Is made; must be empty if it is there.
    report : Path or None
        The report of this audit; None where it is not there any more. Explanations that it links come along.

    Returns
    -------
    list of str
        The files, relative to the folder.

    Raises
    ------
    ConfigError
        If something lies in the folder, which would then be taken for a part of the audit.
    StorageError
        If a file would lie outside of the folder, or the report or its explanations are no plain files.
    """
    assert workspace.past is not None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError("the folder to export to is not empty", found=folder, hint="name a new one with --to")
    explanations = []
    if report is not None:
        require_plain(report, kind="file")
        explanations = _explanations(report.parent, workspace.past.audit_id)
    files = written(_exported(workspace))
    require_inside(folder, [*files, *explanations])
    partial = folder.with_name(f".{folder.name}.partial")
    if partial.is_symlink():  # which is not followed
        partial.unlink()
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_files(files, partial)
    (partial / "runs.csv").write_bytes(csv_bytes(workspace.lake.read_table("provenance")))
    if report is not None:
        shutil.copyfile(report, partial / REPORT, follow_symlinks=False)
        for name in explanations:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(report.parent / name, partial / name, follow_symlinks=False)
    materials = list(_materials(workspace, workspace.lake.require("metric_table")))
    if workspace.past.software:
        _write_json(partial / MATERIALS, _bill(workspace, materials))
    (partial / "README.md").write_text(_readme(workspace, report is not None), "utf-8")
    _write_json(partial / PROVENANCE, _statement(workspace, partial, materials))
    write_checksums(partial)
    if folder.exists():
        folder.rmdir()
    partial.rename(folder)
    return plain_files(folder, no="folder that was exported")


def _explanations(beside: Path, audit_id: str) -> list[str]:
    """Return the explanations of an audit that lie beside its report, relative to that; raises StorageError."""
    folder = explanations_folder(audit_id)
    for path in (beside / folder).parent, beside / folder:
        if not os.path.lexists(path):
            return []
        require_plain(path, kind="folder")
    names = plain_files(beside / folder, no="folder of explanations")
    return [f"{folder}/{name}" for name in names]


def _exported(workspace: Workspace) -> Exported:
    """Return what the audit hands on in every form that there is."""
    assert workspace.past is not None
    audit, lake = workspace.audit, workspace.lake
    table = current_table(lake.read_table("metric_table"))
    about = {}
    for (model,), rows in table.group_by("model"):
        what = "weights sha256" if model in audit.encoders else "version (digest of all files that decide)"
        if digests := sorted(rows["checkpoint_sha256"].drop_nulls().unique()):
            about[str(model)] = {what: ", ".join(digests)}
    return Exported(
        table,
        headline_reading(workspace),
        title=audit.title,
        addresses=model_addresses(audit),
        about=about,
        hub={name: hub_dataset(entry.root) for name, entry in audit.datasets.items() if entry.root.startswith(HUB)},
        made_at=workspace.past.made_at,
        suites=workspace.own_suites,
    )


def _bill(workspace: Workspace, materials: list[Material]) -> dict[str, Any]:
    assert workspace.past is not None
    return bill_of_materials(
        workspace.past.software,
        materials,
        audit_id=workspace.past.audit_id,
        version=workspace.past.software.get("plumbline", __version__),
        made_at=workspace.past.made_at,
    )


def _statement(workspace: Workspace, folder: Path, materials: list[Material]) -> dict[str, Any]:
    assert workspace.past is not None
    return provenance_statement(
        folder,
        plain_files(folder, no="folder that was exported"),
        materials,
        audit_id=workspace.past.audit_id,
        version=__version__,
        settings=workspace.past.settings,
        runs=workspace.lake.read_table("provenance").to_dicts(),
        made_at=workspace.past.made_at,
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def _materials(workspace: Workspace, table: Committed) -> Iterator[Material]:
    """Yield what the audit was made from, as it was recorded; nothing is read from the sources of now."""
    assert workspace.past is not None
    yield Material("lake/metric_table", {"sha256": table.sha256}, {"rows": table.rows})
    prompts = set(workspace.lake.read_table("metric_table")["suite_hash"])
    for suite in all_suites(workspace.own_suites):
        if suite.hash in prompts:
            yield Material(f"prompts/{suite.id}", {"plumblinePrompts": suite.hash}, {"prompts": len(suite.texts)})
    for (name, partition), committed in workspace.past.things.items():
        if name in _SOURCES:
            yield Material(f"lake/{name}/{partition}", {"sha256": committed.sha256}, {"rows": committed.rows})
        yield from _sources(workspace, committed)


def _sources(workspace: Workspace, committed: Committed) -> Iterator[Material]:
    details = committed.details
    if committed.name == "records":
        digests = {"plumblineFolder": details["folder_digest"], "plumblineRecords": details["dataset_digest"]}
        yield Material(
            f"dataset/{committed.partition}", digests, {"reader": details["reader"], "images": committed.rows}
        )
    if committed.name == "text_embeddings":
        digests = {"sha256": details["weights_sha256"], "plumblineCheckpoint": details["checkpoint"]}
        entry = workspace.audit.encoders.get(committed.partition)
        yield Material(f"checkpoint/{committed.partition}", digests, {"address": entry.address} if entry else {})
    if committed.name == "generations":
        digests = {"plumblineCheckpoint": details["version"], "plumblinePrompts": details["prompts"]}
        yield Material(f"answers/{committed.partition}", digests, {"decoding": details["decoding"]})


def _readme(workspace: Workspace, with_report: bool) -> str:
    assert workspace.past is not None
    bill = (
        f"- `{MATERIALS}`: software, models and datasets: a bill of materials (CycloneDX {SPECIFICATION}).\n"
        if workspace.past.software
        else ""
    )
    report = (
        "- `report.html`: the report, one page that works offline; `explanations/` explains numbers."
        if with_report
        else "- The report is not here: a later audit has taken its place."
    )
    return f"""# {escaped(workspace.audit.title)}

Audit `{workspace.past.audit_id}`, made {escaped(workspace.past.made_at)} with Plumbline {__version__}.

- `metric_table.parquet`, `metric_table.csv`: every number, one row each. First the columns of CLIP_benchmark (dataset,
  model, pretrained, task, language, model_fullname), then Plumbline's; `row_id` names a row for `plumbline explain`.
- `croissant.json`: what each column of `metric_table.csv` is, as Croissant metadata.
- `clip_benchmark.csv`: a row a model and dataset, a column a headline number, as CLIP_benchmark builds its table.
- `numbers.json`: the same numbers as one flat dict, for experiment trackers.
- `eval_results/`: for each model a file for the folder `.eval_results` of its repository on the Hugging Face Hub; a
  dataset that was read elsewhere stands by its name here, and needs its id there. A model without a number on the
  scorecard has no file here; its model card says so.
- `scorecard.csv`, `scorecard.png`: models x questions, the worst model first; `row` names the row of each cell,
  and models whose `ranked` is false were asked on other images than the others: their sizes cannot be compared.
{report}
- `{PROVENANCE}`: an in-toto statement (SLSA provenance) of these files and of what they were made from, with digests.
{bill}- `runs.csv`: which Dagster and MLflow runs made each cell.
- `model_cards/`: for each model a section of a Hugging Face model card, with its numbers as evaluation results.
- `impact_ratios.md`, `impact_ratios.csv`: selection rates and impact ratios in the form of New York City's Local Law
  144. It is no bias audit of a hiring tool; the page says why.
- `SHA256SUMS`: `plumbline verify FOLDER`, or `sha256sum -c SHA256SUMS`.
"""
