"""A fitted mitigation of an audited cell as a folder that can be used without Plumbline."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from assets.cells import StoredCell
from assets.findings import headline_reading
from assets.mitigation_files import read_fits
from plumbline.catalog.suites import Suite
from plumbline.errors import ConfigError
from plumbline.metrics.paired.mitigations import IMPROVED, NO_EVIDENCE, UNDEFINED, WORSENED
from plumbline.mitigations.export import ExportFacts, export_mitigation
from plumbline.mitigations.logit_adjustment.cells import SUITES, TRIDENT
from plumbline.mitigations.text_mitigations import FittedMitigation
from plumbline.report.recommendation import advice
from plumbline.report.rows import defined
from plumbline.report.transfer import is_of_labels, tried
from resources.workspace import Workspace


def export_from_audit(workspace: Workspace, encoder: str, dataset: str, mitigation: str, folder: Path) -> list[Path]:
    """Write a mitigation that an audit fitted; return the files.

    A logit adjustment has factors for the candidates of each suite that it was fitted on: a folder a suite.

    Parameters
    ----------
    encoder, dataset, mitigation : str
        Ids in the audit file.

    Raises
    ------
    ConfigError
        If the audit does not try this mitigation on this cell.
    StorageError
        If it has not been fitted, or on other content than the cell has now.
    """
    stored = _tried_on(workspace, encoder, dataset, mitigation)
    fits = read_fits(stored, mitigation)
    committed = workspace.lake.require("image_embeddings", partition=stored.partition)
    facts = ExportFacts(
        encoder=encoder,
        family=stored.family.name,
        weights_sha256=stored.logits.details["weights_sha256"],
        width=int(committed.details.get("width", 0)),
        dataset=dataset,
        dataset_digest=stored.records.details["dataset_digest"],
        audit=workspace.audit.title,
        measured=_told(workspace, stored, mitigation),
    )
    if isinstance(fits, FittedMitigation):
        return export_mitigation(fits, facts, folder)
    files: list[Path] = []
    for what, fit in fits.items():
        suite = _suite_of(stored, SUITES[fit.settings.candidates] if what == TRIDENT else what)
        measured = _told(workspace, stored, mitigation, suite.id)
        about = replace(facts, suite=suite.id, averaged=bool(suite.ensemble), measured=measured)
        if what == TRIDENT:
            classes, probes = _candidates(suite)
            about = replace(about, classes=classes, probes=probes)
        else:
            about = replace(about, candidates=suite.texts)
        files += export_mitigation(fit, about, folder / suite.id)
    return files


def _tried_on(workspace: Workspace, encoder: str, dataset: str, mitigation: str) -> StoredCell:
    """Return the cell; refuses one that the audit file does not have, or on which it does not try the mitigation."""
    if (dataset, encoder) not in workspace.audit.cells:
        cells = ", ".join(f"{d} {m}" for d, m in workspace.audit.cells)
        raise ConfigError(
            "the audit file audits no such cell",
            where=workspace.audit_path,
            found=f"{dataset} {encoder}",
            expected=cells,
        )
    stored = StoredCell.find(workspace, dataset, encoder)
    if mitigation not in stored.mitigations:
        raise ConfigError(
            "this mitigation is not tried on this cell",
            where=stored.partition,
            found=mitigation,
            expected=", ".join(stored.mitigations) or "none is",
        )
    return stored


def _suite_of(stored: StoredCell, name: str) -> Suite:
    return next(suite for suite in stored.suites if suite.id == name)


def _candidates(suite: Suite) -> tuple[tuple[str, ...], tuple[str, ...]]:
    is_class = [candidate.category == "class" for candidate in suite.candidates]
    return (
        tuple(text for text, of_class in zip(suite.texts, is_class) if of_class),
        tuple(text for text, of_class in zip(suite.texts, is_class) if not of_class),
    )


def _told(workspace: Workspace, stored: StoredCell, mitigation: str, suite: str | None = None) -> tuple[str, ...]:
    """Say what the audit found, in sentences: its advice, what is better and worse, and of what nothing is known.

    Parameters
    ----------
    suite : str, optional
        Of which suite alone; the advice is of all.
    """
    if workspace.lake.committed("bias_transfer") is None:
        return ()
    table = workspace.lake.read_table("bias_transfer")
    leaking = tuple(name for name, settings in workspace.audit.mitigations.items() if settings.leaking)
    candidates = tried(table, dataset=stored.dataset, model=stored.model, leaking=leaking)
    rows = table.filter(
        (pl.col("model") == stored.model) & (pl.col("dataset") == stored.dataset) & (pl.col("condition") == mitigation)
    )
    # Comparisons of the one-probe tests are named after the suite of single classes.
    named = _OF_TRIDENT if suite in _OF_TRIDENT else (suite,)
    rows = rows if suite is None else rows.filter(pl.col("suite").is_in(named))
    verdicts = rows["verdict"].to_list()
    changed = [_sentence(row) for row in rows.to_dicts() if row["verdict"] in (IMPROVED, WORSENED)]
    skews = rows.filter(pl.col("verdict") == NO_EVIDENCE, pl.col("metric") == "max_skew", pl.col("value") > 0)
    most = skews.sort("value", descending=True).head(_MOST_UNKNOWN)
    counted = (
        f"of {len(verdicts)} comparisons {verdicts.count(IMPROVED)} improved, {verdicts.count(WORSENED)} worsened, "
        f"{verdicts.count(NO_EVIDENCE)} show no evidence of either, {verdicts.count(UNDEFINED)} are undefined"
    )
    advised = (f"what the audit advises: {advice(candidates, headline_reading(workspace))}",) if candidates else ()
    return (*advised, *([counted] if verdicts else []), *changed, *map(_sentence, most.to_dicts()))


_OF_TRIDENT = ("trident", "trident_composite", "trident_mixed")
_MOST_UNKNOWN = 3
"""Skews that rose without evidence that are told, the largest ones."""


def _sentence(row: dict) -> str:
    what = " ".join(str(row[part]) for part in ("suite", "event") if row[part])
    by = f" by {row['attribute']}" if row["attribute"] else ""
    ends = f"interval {row['ci_low']:.3g} to {row['ci_high']:.3g}" if defined(row["ci_low"]) else "no interval"
    of_labels = f"; {row['reason']}" if is_of_labels(row) else ""
    return (
        f"{row['verdict']}: {row['metric']} ({row['definition']}) of {what}{by}, {row['value_before']:.3g} before and "
        f"{row['value_after']:.3g} after on {row['n']} images (difference {row['value']:+.3g}, {ends}, "
        f"q = {row['q']:.2g}{of_labels})"
    )
