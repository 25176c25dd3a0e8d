"""Great Expectations as asset checks: partitioned, blocking, one table of facts validated by each."""

from collections.abc import Callable

import dagster as dg
import polars as pl

from assets.asked_cells import declaration_of
from assets.check_results import check_result, outcome_row
from assets.partitions import DATASETS
from plumbline.datasets.extended import label_shares, label_vocabulary
from plumbline.datasets.preview import none_left, outside_balance, too_many_refused
from plumbline.datasets.records import CONTEXT_COLUMNS
from plumbline.digests import digest_json
from plumbline.provenance.code_versions import code_version
from plumbline.report.inputs import NOT_CHECKED
from resources.quality import Quality
from resources.workspace import Workspace

_JUDGING = code_version(label_shares, label_vocabulary, shells=[__name__, "assets.check_results"])
Facts = Callable[[Workspace, str], pl.DataFrame]
Expectations = Callable[[object, Workspace, str], list]
Note = Callable[[Workspace, str, pl.DataFrame], str | None]
"""What is said of the facts in place of the validation's own words, if anything."""


def must_pass(workspace: Workspace, dataset: str) -> tuple[str, ...]:
    """Return the assets whose checks a cell of a dataset must pass; automatic labels only where they are used."""
    return ("records", "extended_records") if workspace.audit.uses_automatic_labels(dataset) else ("records",)


def declared(workspace: Workspace, dataset: str) -> str:
    """Return the digest of what is demanded of a dataset, and how it is judged: a verdict holds for these only."""
    audit, entry = workspace.audit, workspace.dataset_entry(dataset)
    demands = [audit.thresholds.model_dump(mode="json"), audit.statistics.min_group]
    return digest_json([entry.balance, entry.quarantine_rate, _JUDGING, *demands])


def _balance_facts(name: str, *, composite: bool) -> Facts:
    def facts(workspace: Workspace, dataset: str) -> pl.DataFrame:
        frame, entry = workspace.lake.read_table(name, partition=dataset), workspace.dataset_entry(dataset)
        return label_shares(frame, declaration_of(workspace, dataset), entry.balance, composite=composite)

    return facts


def _within_range(gx, workspace: Workspace, dataset: str) -> list:
    above = gx.ExpectColumnPairValuesAToBeGreaterThanB
    return [
        above(column_A="share", column_B="expected_low", or_equal=True),
        above(column_A="expected_high", column_B="share", or_equal=True),
    ]


def _records(workspace: Workspace, dataset: str) -> pl.DataFrame:
    return workspace.lake.read_table("records", partition=dataset)


def _vocabulary(gx, workspace: Workspace, dataset: str) -> list:
    declaration = declaration_of(workspace, dataset)
    base = None if declaration.may_lack_labels else declaration.base_attribute
    expected = [
        gx.ExpectColumnValuesToBeInSet(column=column, value_set=values)
        for column, values in label_vocabulary(declaration).items()
    ]
    never_null = [gx.ExpectColumnValuesToNotBeNull(column=c) for c in (base, "path") if c]
    return [*expected, *never_null, gx.ExpectColumnValuesToMatchRegex(column="image_id", regex="^[0-9a-f]{64}$")]


def _own_words(workspace: Workspace, dataset: str, facts: pl.DataFrame) -> None:
    """Leave what is found to the validation's own words."""


def _unique(gx, workspace: Workspace, dataset: str) -> list:
    return [gx.ExpectColumnValuesToBeUnique(column=column) for column in ("image", "place")]


def _listed_once(workspace: Workspace, dataset: str) -> pl.DataFrame:
    """Return image and path of each row, each with the context that it is listed in."""
    context = [pl.col(name).fill_null("") for name in CONTEXT_COLUMNS]
    return _records(workspace, dataset).select(
        image=pl.concat_str("image_id", *context, separator="|"), place=pl.concat_str("path", *context, separator="|")
    )


def _accounts(workspace: Workspace, dataset: str) -> pl.DataFrame:
    records = workspace.lake.require("records", partition=dataset)
    quarantined = workspace.lake.require("quarantine", partition=dataset).rows
    listed = records.details["listed"]
    return pl.DataFrame(
        {
            "listed": [listed],
            "accepted_and_quarantined": [records.rows + quarantined],
            "accepted": [records.rows],
            "quarantine_rate": [quarantined / max(listed, 1)],
        }
    )


def _quarantine_limit(workspace: Workspace, dataset: str) -> float:
    of_dataset = workspace.dataset_entry(dataset).quarantine_rate
    return workspace.audit.thresholds.quarantine_rate if of_dataset is None else of_dataset


def _accounted(gx, workspace: Workspace, dataset: str) -> list:
    limit = _quarantine_limit(workspace, dataset)
    return [
        gx.ExpectColumnPairValuesToBeEqual(column_A="listed", column_B="accepted_and_quarantined"),
        gx.ExpectColumnValuesToBeBetween(column="quarantine_rate", min_value=0, max_value=limit),
        gx.ExpectColumnValuesToBeBetween(column="accepted", min_value=1),
    ]


def _label_error(workspace: Workspace, dataset: str) -> pl.DataFrame:
    error = workspace.lake.read_table("label_error", partition=dataset)
    return error.filter(pl.col("n") >= workspace.audit.statistics.min_group)


def _balance_note(workspace: Workspace, dataset: str, shares: pl.DataFrame) -> str | None:
    return "; ".join(outside_balance(shares, dataset=dataset)) or None


def _accounts_note(workspace: Workspace, dataset: str, accounts: pl.DataFrame) -> str | None:
    """Return what is said where too many images are quarantined, or all; None where the accounts are as demanded."""
    account, quarantined = accounts.row(0, named=True), workspace.lake.read_table("quarantine", partition=dataset)
    limit = _quarantine_limit(workspace, dataset)
    notes = []
    if account["quarantine_rate"] > limit:
        notes.append(too_many_refused(quarantined, account["quarantine_rate"], limit, dataset=dataset))
    if not account["accepted"]:
        notes.append(none_left(account["listed"], quarantined, dataset=dataset))
    return "; ".join(notes) or None


def _error_limited(gx, workspace: Workspace, dataset: str) -> list:
    return [gx.ExpectColumnValuesToBeBetween(column="rate", max_value=workspace.audit.thresholds.label_error)]


def _error_note(workspace: Workspace, dataset: str, error: pl.DataFrame) -> str:
    """Return how often the automatic label is wrong and what is allowed; `error` is of `_label_error`."""
    limit, least = workspace.audit.thresholds.label_error, workspace.audit.statistics.min_group
    left_out = f"groups of fewer than {least} images are left out"
    if error.is_empty():
        return f"{NOT_CHECKED}no group has {least} images with an automatic gender beside their own (man or woman)"
    wrong = error.filter(pl.col("rate") > limit)
    if wrong.is_empty():
        return f"wrong on at most {error['rate'].max():.1%} of a group's images, allowed {limit:.0%}; {left_out}"
    errors = ", ".join(
        f"{row['rate']:.1%} of {row['n']} images ({row['group'] or 'all together'})"
        for row in wrong.iter_rows(named=True)
    )
    return (
        f"the automatic gender is wrong on {errors}; allowed {limit:.0%}, {left_out}. Name another `labeller` in the "
        "audit file, or raise `thresholds.label_error` and read what depends on the label with that in mind"
    )


_CHECKS: tuple[tuple[str, str, str, Facts, Expectations, Note], ...] = (
    ("records", "label_balance", "The share of every base label lies in its declared range.",
     _balance_facts("records", composite=False), _within_range, _balance_note),
    ("records", "vocabulary", "Labels are those of the dataset; a published one has every class; ids are sha256.",
     _records, _vocabulary, _own_words),
    ("records", "uniqueness", "No image and no path occurs twice in one context.", _listed_once, _unique, _own_words),
    ("records", "accounting", "Listed = accepted + quarantined, and the quarantine is not too large.",
     _accounts, _accounted, _accounts_note),
    ("extended_records", "composite_balance", "The share of every base × automatic gender label lies in its range.",
     _balance_facts("extended_records", composite=True), _within_range, _balance_note),
    ("extended_records", "label_error", "The automatic gender label errs in no group of enough images more often than "
     "`thresholds.label_error` allows. It blocks where Trident suites, or a balance, use that label; else it warns.",
     _label_error, _error_limited, _error_note),
)  # fmt: skip

BLOCKING_CHECKS = tuple(dg.AssetCheckKey(dg.AssetKey(asset), name) for asset, name, *_ in _CHECKS)


def _asset_check(
    asset: str, name: str, description: str, facts: Facts, expectations: Expectations, describe: Note
) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=asset, name=name, description=description, blocking=True, partitions_def=DATASETS)
    def check(
        context: dg.AssetCheckExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        quality: dg.ResourceParam[Quality],
    ) -> dg.AssetCheckResult:
        dataset = context.partition_key
        frame = facts(workspace, dataset)
        outcome = quality.validate(f"{dataset}.{name}", frame, lambda gx: expectations(gx, workspace, dataset))
        note = describe(workspace, dataset, frame)
        workspace.lake.write_table(
            "checks",
            outcome_row(asset, name, description, frame, outcome, note=note),
            partition=f"{dataset}|{asset}.{name}",
            details={
                "declared": declared(workspace, dataset),
                "passed": outcome.passed,
                "of": workspace.lake.require(asset, partition=dataset).version,
            },
        )
        blocks = asset in must_pass(workspace, dataset)
        severity = dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN
        return check_result(frame, outcome, severity=severity, note=note)

    return check


ASSET_CHECKS = [_asset_check(*row) for row in _CHECKS]
