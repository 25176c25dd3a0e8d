"""What changed since the audit before: every number old and new, flipped images, and what got worse."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import polars as pl

from assets.answers import READING_ANSWERS
from assets.audit_comparison import AuditDiff, compare_audits
from assets.recorded import asset
from assets.results import OWNERS, markdown_table, materialised
from plumbline.datasets.records import Declaration
from plumbline.encoders.families import answers
from plumbline.metrics.cell import build_cell
from plumbline.provenance.code_versions import DESCRIPTIONS, code_version
from plumbline.provenance.diff import (
    REGRESSED,
    REGRESSED_UNTESTED,
    VERDICTS,
    judged,
    paired_differences,
    table_differences,
)
from plumbline.report.numbers import interval
from plumbline.storage import Committed
from plumbline.storage.lake import recorded_audits
from resources.workspace import Workspace

_SHOWN = ("metric", "model_new", "dataset", "suite", "event", "attribute", "value_old", "value_new", "value",
          "ci_low", "ci_high", "q")  # fmt: skip
_MOST_SAID = 5


@asset(
    deps=["audit_record"],
    group_name="findings",
    owners=OWNERS,
    kinds={"numpy", "polars"},
    code_version=code_version(
        build_cell,
        table_differences,
        paired_differences,
        judged,
        Declaration,
        answers,
        "plumbline.generators.judge",
        "plumbline.language.user_files",
        shells=[
            __name__, "assets.asked_cells", "assets.audit_comparison", "assets.cells", "assets.metrics",
            *READING_ANSWERS,
        ],
        files=[DESCRIPTIONS],
    ),
)  # fmt: skip
def audit_diff(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> dg.MaterializeResult:
    """What changed since the previous audit: the old and new value of each number and their difference.

    Only cells whose content changed are compared. Unless the dataset changed, skews, parity differences, harm rates,
    Trident rates and MaxToxicity are paired by image or by set. The table `audit_flips` lists the images whose top
    text changed. The check `no_regression` fails where a metric got worse by more than `thresholds.regression` of the
    audit file allows, and warns where something was not compared: a suite whose prompts changed, a checkpoint at
    chance, a number without an interval. Empty without a previous audit.
    """
    lake = workspace.lake
    new, *before = recorded_audits(lake)
    diff = compare_audits(workspace, before[0], new, log=context.log.info) if before else AuditDiff.nothing()
    details = {
        "audit_id": new,
        "old": before[0] if before else None,
        "old_made_at": recorded_audits(lake)[before[0]] if before else None,
        "causes": diff.causes,
        "absent": diff.absent,
        "not_compared": diff.not_compared,
    }
    lake.write_table("audit_flips", diff.flips, details=details)
    committed = lake.write_table("audit_diff", diff.differences, details=details)
    differences = judged_of(workspace, diff.differences)
    return materialised(
        committed,
        lake=lake,
        frame=diff.differences,
        compared_with=before[0] if before else "no audit before this one",
        causes=dg.MetadataValue.json(diff.causes),
        not_compared=dg.MetadataValue.json(diff.not_compared),
        flipped_images=diff.flips.height,
        **{verdict.replace(" ", "_"): differences.filter(verdict=verdict).height for verdict in VERDICTS},
        regressions=dg.MetadataValue.md(markdown_table(differences.filter(verdict=REGRESSED).select(_SHOWN))),
    )


def judged_of(workspace: Workspace, differences: pl.DataFrame) -> pl.DataFrame:
    """Return what became of each number, by what the audit file allows; see `judged`."""
    return judged(differences, workspace.audit.thresholds.regression)


@dataclass(frozen=True)
class StoredDiff:
    """The diff of an audit as it is in the lake; `details` name the audit before it, causes, and what is absent."""

    details: Mapping[str, Any]
    differences: pl.DataFrame
    flips: pl.DataFrame


def diff_of(workspace: Workspace, table: Committed) -> StoredDiff | None:
    """Return the diff that was made of the audit with this metric table; None where there is none."""
    committed = workspace.lake.committed("audit_diff")
    if (
        committed is None
        or committed.details["audit_id"] != table.details["audit_id"]
        or committed.details["old"] is None
    ):
        return None
    lake = workspace.lake
    return StoredDiff(
        committed.details, lake.read_table("audit_diff", manifest=committed), lake.read_table("audit_flips")
    )


@dg.asset_check(
    asset="audit_diff",
    blocking=False,
    description="No metric got worse since the previous audit by more than `thresholds.regression` allows; warns where "
    "something was not compared: a suite whose prompts changed, a checkpoint that is no better than chance, a number "
    "without an interval.",
)
def no_regression(workspace: dg.ResourceParam[Workspace]) -> dg.AssetCheckResult:
    """List regressions: metric, group, old and new value."""
    committed = workspace.lake.require("audit_diff")
    differences = workspace.lake.read_table("audit_diff", manifest=committed)
    became = judged_of(workspace, differences)
    worst, untested = became.filter(verdict=REGRESSED), became.filter(verdict=REGRESSED_UNTESTED)
    not_compared = committed.details.get("not_compared", [])
    regressed = [
        f"{row['metric']} of {row['model_new']} on {row['dataset']}"
        f" ({', '.join(str(row[c]) for c in ('suite', 'event', 'attribute') if row[c])}):"
        f" {row['value_old']:.3g} to {row['value_new']:.3g}, by"
        f" {interval(row['ci_low'], row['ci_high'])}"
        for row in worst.head(_MOST_SAID).iter_rows(named=True)
    ]
    notes = [_several(regressed, worst.height)] if regressed else []
    notes += [f"not compared: {_several(not_compared, len(not_compared))}"] if not_compared else []
    notes += [f"worse by more than is allowed, but not tested: {untested.height:,}"] if untested.height else []
    return dg.AssetCheckResult(
        passed=worst.is_empty() and untested.is_empty() and not not_compared,
        # That nothing is known of it is not that it got worse.
        severity=dg.AssetCheckSeverity.WARN if worst.is_empty() else dg.AssetCheckSeverity.ERROR,
        description="; ".join(notes) or "nothing got worse by more than is allowed",
        metadata={"regressions": dg.MetadataValue.md(markdown_table(worst.select(_SHOWN)))},
    )


def _several(texts: Sequence[str], number: int) -> str:
    more = f"; and {number - _MOST_SAID} more" if number > _MOST_SAID else ""
    return "; ".join(texts[:_MOST_SAID]) + more
