"""What may not run: a cell of a dataset whose blocking checks have not passed, by whatever way it was asked for."""

import dagster as dg

from assets.checks import BLOCKING_CHECKS

PASSED = "SUCCEEDED"
_VERDICTS = {"FAILED": "failed", "EXECUTION_FAILED": "could not be evaluated"}


def require_passed(context: dg.AssetExecutionContext, dataset: str, *, of: tuple[str, ...]) -> None:
    """Stop the step unless the newest evaluation of every blocking check of this dataset has passed.

    Dagster's blocking checks act inside one run only; a cell is a run of its own, so it asks here.

    Parameters
    ----------
    of : tuple of str
        The assets whose checks count.

    Raises
    ------
    dagster.Failure
        With the checks that failed or never ran. Not retried.
    """
    refused = failed_checks(context.instance, dataset, of=of)
    if refused:
        raise dg.Failure(
            description=f"{dataset}: refused, since these checks have not passed: {', '.join(refused)}. "
            "Look at the checks of `records` and `extended_records`; mend the dataset, or state other ranges in "
            "the audit file, and materialise them again.",
            allow_retries=False,
        )


def failed_checks(instance: dg.DagsterInstance, dataset: str, *, of: tuple[str, ...]) -> list[str]:
    """Return `asset.check (status)` for every blocking check of these assets that has not passed for a dataset."""
    keys = [key for key in BLOCKING_CHECKS if key.asset_key.to_user_string() in of]
    # Dagster has no public call for the newest evaluation of a partitioned check; see docs/decisions.
    # A planned or running evaluation is no verdict.
    infos = instance.event_log_storage.get_asset_check_partition_info(keys, partition_keys=[dataset])
    status = {
        info.check_key: info.latest_execution_status.value for info in infos if info.latest_execution_status
    }
    return [
        f"{key.asset_key.to_user_string()}.{key.name} ({_VERDICTS.get(status.get(key, ''), 'not run')})"
        for key in keys
        if status.get(key) != PASSED
    ]
