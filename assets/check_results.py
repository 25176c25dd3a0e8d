"""The outcome of a validation, as Dagster shows it and as the report does."""

import dagster as dg
import polars as pl

from assets.results import markdown_table
from plumbline.report.inputs import NOTHING_DECLARED
from resources import served
from resources.quality import Validation


def check_result(
    frame: pl.DataFrame,
    outcome: Validation,
    *,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    note: str | None = None,
) -> dg.AssetCheckResult:
    """Return a validation as Dagster shows it; `note` replaces its own wording."""
    return dg.AssetCheckResult(
        passed=outcome.passed,
        severity=severity,
        description=note or _describe(frame, outcome),
        metadata=_metadata(frame, outcome),
    )


def _metadata(frame: pl.DataFrame, outcome: Validation) -> dict:
    shown = frame if frame.height <= 40 else frame.head(0)
    return {
        "met": NOTHING_DECLARED
        if frame.is_empty()
        else f"{outcome.expectations - len(outcome.unmet)} of {outcome.expectations} expectations, over {_rows(frame)}",
        "facts": dg.MetadataValue.md(markdown_table(shown)),
        "unmet": dg.MetadataValue.json(outcome.unmet),
        "page": dg.MetadataValue.md(f"[the validation]({served.QUALITY}/pages/{outcome.docs.rpartition('/')[2]})"),
    }


def _describe(frame: pl.DataFrame, outcome: Validation) -> str:
    """Return what was not met, in the words of the validation."""
    if frame.is_empty():
        return NOTHING_DECLARED
    if outcome.passed:
        return f"{outcome.expectations} expectations met over {_rows(frame)}"
    return "; ".join(f"{u['expectation']} on {u['on']}: {u['observed']}" for u in outcome.unmet)


def _rows(frame: pl.DataFrame) -> str:
    return f"{frame.height:,} row{'' if frame.height == 1 else 's'}"


def outcome_row(
    asset: str, name: str, description: str, frame: pl.DataFrame, outcome: Validation, *, note: str | None = None
) -> pl.DataFrame:
    """Return the outcome of a check as the report shows it; `note` as in `check_result`."""
    return pl.DataFrame(
        {
            "check": [f"{asset}.{name}"],
            "passed": [outcome.passed],
            "observed": [note or _describe(frame, outcome)],
            "expected": [description],
            "link": [outcome.docs],
        }
    )
