"""Great Expectations as asset checks: partitioned, blocking, one table of facts validated by each."""

from collections.abc import Callable

import dagster as dg
import polars as pl

from assets.partitions import DATASETS
from assets.results import markdown_table
from plumbline.audit_file import DatasetEntry
from plumbline.datasets import LABEL_COLUMNS, composite_labels, reader_for
from plumbline.errors import ConfigError
from resources.places import Places
from resources.quality import Quality, Validation

Facts = Callable[[Places, str], pl.DataFrame]
Expectations = Callable[[object, Places, str], list]


def label_shares(frame: pl.DataFrame, entry: DatasetEntry, *, composite: bool) -> pl.DataFrame:
    """Return the share of every label of the columns whose balance the audit file declares.

    Parameters
    ----------
    composite : bool
        False: plain record columns. True: `COLUMN_gender`, the column joined with the automatic gender label.

    Returns
    -------
    DataFrame
        `attribute, label, n, share, expected_low, expected_high`; labels that no row has are not listed.
    """
    tables = []
    for attribute, (low, high) in entry.balance.items():
        base = attribute.removesuffix("_gender")
        if attribute not in frame.columns and base not in frame.columns:
            raise ConfigError(
                "a balance is declared for a label that records do not have",
                where="audit file, datasets, balance",
                found=attribute,
                expected=f"one of {', '.join(LABEL_COLUMNS)}, or one of them with `_gender`",
            )
        if (attribute not in frame.columns) != composite:
            continue
        labels = composite_labels(frame[base], frame["auto_gender"]) if composite else frame[attribute]
        counts = labels.alias("label").drop_nulls().value_counts(name="n").sort("label")
        tables.append(
            counts.select(
                pl.lit(attribute).alias("attribute"),
                "label",
                pl.col("n").cast(pl.Int64),
                (pl.col("n") / pl.col("n").sum()).alias("share"),
                pl.lit(low).alias("expected_low"),
                pl.lit(high).alias("expected_high"),
            )
        )
    schema = {"attribute": pl.String, "label": pl.String, "n": pl.Int64, "share": pl.Float64,
              "expected_low": pl.Float64, "expected_high": pl.Float64}  # fmt: skip
    return pl.concat(tables) if tables else pl.DataFrame(schema=schema)


def _balance_facts(name: str, *, composite: bool) -> Facts:
    def facts(places: Places, dataset: str) -> pl.DataFrame:
        return label_shares(
            places.lake.read_table(name, partition=dataset),
            places.dataset_entry(dataset),
            composite=composite,
        )

    return facts


def _within_range(gx, places: Places, dataset: str) -> list:
    above = gx.ExpectColumnPairValuesAToBeGreaterThanB
    return [
        above(column_A="share", column_B="expected_low", or_equal=True),
        above(column_A="expected_high", column_B="share", or_equal=True),
    ]


def _records(places: Places, dataset: str) -> pl.DataFrame:
    return places.lake.read_table("records", partition=dataset)


def _vocabulary(gx, places: Places, dataset: str) -> list:
    declaration = reader_for(places.dataset_entry(dataset).reader).declaration
    vocabularies = {rule.column: [*rule.values.values(), *rule.groups] for rule in declaration.rules}
    expected = [
        gx.ExpectColumnValuesToBeInSet(column=column, value_set=values)
        for column, values in vocabularies.items()
        if values
    ]
    never_null = [gx.ExpectColumnValuesToNotBeNull(column=c) for c in (declaration.base_attribute, "path")]
    return [
        *expected,
        *never_null,
        gx.ExpectColumnValuesToMatchRegex(column="image_id", regex="^[0-9a-f]{64}$"),
    ]


def _unique(gx, places: Places, dataset: str) -> list:
    return [
        gx.ExpectColumnValuesToBeUnique(column="image_id"),
        gx.ExpectColumnValuesToBeUnique(column="path"),
    ]


def _accounts(places: Places, dataset: str) -> pl.DataFrame:
    records = places.lake.require("records", partition=dataset)
    quarantined = places.lake.require("quarantine", partition=dataset).rows
    listed = records.details["listed"]
    return pl.DataFrame(
        {
            "listed": [listed],
            "accepted_and_quarantined": [records.rows + quarantined],
            "accepted": [records.rows],
            "quarantine_rate": [quarantined / max(listed, 1)],
        }
    )


def _accounted(gx, places: Places, dataset: str) -> list:
    limit = places.audit.thresholds.quarantine_rate
    return [
        gx.ExpectColumnPairValuesToBeEqual(column_A="listed", column_B="accepted_and_quarantined"),
        gx.ExpectColumnValuesToBeBetween(column="quarantine_rate", min_value=0, max_value=limit),
        gx.ExpectColumnValuesToBeBetween(column="accepted", min_value=1),
    ]


def _label_error(places: Places, dataset: str) -> pl.DataFrame:
    error = places.lake.read_table("label_error", partition=dataset)
    return error.filter(pl.col("n") >= places.audit.statistics.min_group)


def _error_limited(gx, places: Places, dataset: str) -> list:
    return [gx.ExpectColumnValuesToBeBetween(column="rate", max_value=places.audit.thresholds.label_error)]


_CHECKS: tuple[tuple[str, str, str, Facts, Expectations], ...] = (
    ("records", "label_balance", "The share of every base label lies in its declared range.",
     _balance_facts("records", composite=False), _within_range),
    ("records", "vocabulary", "Labels are those of the dataset; no base label is missing; ids are sha256.",
     _records, _vocabulary),
    ("records", "uniqueness", "No image and no path occurs twice, within or across splits.", _records, _unique),
    ("records", "accounting", "Listed = accepted + quarantined, and the quarantine is not too large.",
     _accounts, _accounted),
    ("extended_records", "composite_balance", "The share of every base × automatic gender label lies in its range.",
     _balance_facts("extended_records", composite=True), _within_range),
    ("extended_records", "label_error", "The automatic gender label errs in no group more often than allowed.",
     _label_error, _error_limited),
)  # fmt: skip

BLOCKING_CHECKS = tuple(dg.AssetCheckKey(dg.AssetKey(asset), name) for asset, name, *_ in _CHECKS)


def _asset_check(
    asset: str, name: str, description: str, facts: Facts, expectations: Expectations
) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=asset, name=name, description=description, blocking=True, partitions_def=DATASETS)
    def check(
        context: dg.AssetCheckExecutionContext,
        places: dg.ResourceParam[Places],
        quality: dg.ResourceParam[Quality],
    ) -> dg.AssetCheckResult:
        dataset = context.partition_key
        frame = facts(places, dataset)
        outcome = quality.validate(f"{dataset}.{name}", frame, lambda gx: expectations(gx, places, dataset))
        places.lake.write_table(
            "checks",
            _outcome_row(asset, name, description, outcome),
            partition=f"{dataset}|{asset}.{name}",
        )
        return dg.AssetCheckResult(passed=outcome.passed, metadata=_metadata(frame, outcome))

    return check


def _metadata(frame: pl.DataFrame, outcome: Validation) -> dict:
    shown = frame if frame.height <= 40 else frame.head(0)
    return {
        "met": f"{outcome.expectations - len(outcome.unmet)} of {outcome.expectations} expectations, "
        f"over {frame.height} rows",
        "facts": dg.MetadataValue.md(markdown_table(shown)),
        "unmet": dg.MetadataValue.json(outcome.unmet),
        # A path to copy: browsers do not follow file links from a served page.
        "data_docs": dg.MetadataValue.path(outcome.docs.removeprefix("file://")),
    }


def _outcome_row(asset: str, name: str, description: str, outcome: Validation) -> pl.DataFrame:
    unmet = "; ".join(f"{u['expectation']}: {u['observed']}" for u in outcome.unmet)
    return pl.DataFrame(
        {
            "check": [f"{asset}.{name}"],
            "passed": [outcome.passed],
            "observed": [unmet or f"{outcome.expectations} expectations met"],
            "expected": [description],
            "link": [outcome.docs],
        }
    )


ASSET_CHECKS = [_asset_check(*row) for row in _CHECKS]
