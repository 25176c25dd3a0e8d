"""What may not run: a cell of a dataset whose blocking checks have not passed, by whatever way it was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from assets.checks import BLOCKING_CHECKS, declared
from plumbline.recording import unrecorded
from plumbline.storage import Committed
from resources.workspace import Workspace

_FAILED, _NOT_RUN = "failed", "not run"
NOT_AUDITED = "not audited yet; run `plumbline audit`"


def require_passed(workspace: Workspace, dataset: str, *, of: tuple[str, ...]) -> None:
    """Stop the step unless every blocking check of this dataset has passed on what is there now.

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
    refused = failed_checks(workspace, dataset, of=of)
    if refused:
        raise dg.Failure(
            description=f"{dataset}: refused, since these checks have not passed: {', '.join(refused)}. "
            "`plumbline status` repeats what they found, as do the checks of its assets in Dagster; mend the dataset, "
            "or state other ranges in the audit file, and audit again.",
            allow_retries=False,
        )


@dataclass(frozen=True)
class CheckNotPassed:
    """A blocking check of a dataset that has not passed.

    Attributes
    ----------
    name : str
        `asset.check`.
    why : str
        `failed`, `not run`, or why an older verdict does not count.
    """

    name: str
    why: str

    @property
    def failed(self) -> bool:
        """Return whether what is there now was looked at, and found wanting."""
        return self.why == _FAILED

    @property
    def description(self) -> str:
        """Return name and reason."""
        return f"{self.name} ({self.why})"


def checks_not_passed(workspace: Workspace, dataset: str, *, of: tuple[str, ...]) -> list[CheckNotPassed]:
    """Return every blocking check of these assets that has not passed for a dataset.

    A verdict counts only if it is about what is stored now, and about the ranges that the audit file declares now.
    """
    with unrecorded():  # a verdict decides whether something is computed, not what
        assets = {asset: workspace.lake.committed(asset, partition=dataset) for asset in of}
        named = [(key.asset_key.to_user_string(), key.name) for key in BLOCKING_CHECKS]
        reasons = {
            f"{asset}.{name}": _why_not(workspace, dataset, f"{asset}.{name}", assets[asset])
            for asset, name in named
            if asset in of
        }
    return [CheckNotPassed(name, why) for name, why in reasons.items() if why]


def failed_checks(workspace: Workspace, dataset: str, *, of: tuple[str, ...]) -> list[str]:
    """Return `asset.check (why)` for every blocking check of these assets that has not passed for a dataset."""
    return [check.description for check in checks_not_passed(workspace, dataset, of=of)]


def refusal(checks: Sequence[CheckNotPassed], *, of: str = "") -> str | None:
    """Return why there is no number of a dataset: it was refused, or nothing has looked at it yet; None if it passed.

    Parameters
    ----------
    of : str
        The dataset, where it is not said beside.
    """
    if not checks:
        return None
    if all(check.why == _NOT_RUN for check in checks):
        return NOT_AUDITED
    # What comes after a check that failed was not run for that reason.
    checked = [check.description for check in checks if check.failed] or [check.description for check in checks]
    return f"refused, since checks{of and f' of {of}'} have not passed: {', '.join(checked)}"


def check_words(workspace: Workspace, dataset: str, check: CheckNotPassed) -> str:
    """Return what a check that failed found, in the words that Dagster and the terminal showed."""
    committed = workspace.lake.committed("checks", partition=f"{dataset}|{check.name}")
    return "" if committed is None else str(workspace.lake.read_table("checks", manifest=committed)["observed"].item())


def _why_not(workspace: Workspace, dataset: str, check: str, checked: Committed | None) -> str | None:
    verdict = workspace.lake.committed("checks", partition=f"{dataset}|{check}")
    if verdict is None or checked is None:
        return _NOT_RUN
    if verdict.details.get("of") != checked.version:
        return "not run on the newest materialisation"
    if not verdict.details["passed"]:
        return _FAILED
    if verdict.details.get("declared") != declared(workspace, dataset):
        return "not run with the ranges that the audit file declares now"
    return None
