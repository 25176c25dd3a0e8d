"""What may not run: a cell of a dataset whose blocking checks have not passed, by whatever way it was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from assets.answers_checks import ANSWER_CHECK_NAMES, ANSWER_CHECKS_TABLE, JUDGING_ANSWERS
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
    if refused := checks_not_passed(workspace, dataset, of=of):
        raise dg.Failure(description=why_refused(dataset, refused), allow_retries=False)


def why_refused(dataset: str, checks: "Sequence[CheckNotPassed]") -> str:
    """Return what is said where something of a dataset is refused."""
    return (
        f"{dataset}: refused, since these checks have not passed: {', '.join(each.description for each in checks)}. "
        "`plumbline status` repeats what they found, as do the checks of its assets in Dagster; mend the dataset, "
        "or state other ranges in the audit file, and audit again."
    )


@dataclass(frozen=True)
class CheckNotPassed:
    """A check that has not passed, or whose verdict is not about what there is now.

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
    def asset(self) -> str:
        """Return the asset that is checked."""
        return self.name.partition(".")[0]

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
        demands = declared(workspace, dataset)
        reasons = {
            f"{asset}.{name}": _why_not(
                _verdict(workspace, "checks", f"{dataset}|{asset}.{name}"), assets[asset], demands
            )
            for asset, name in named
            if asset in of
        }
    return [CheckNotPassed(name, why) for name, why in reasons.items() if why]


def answers_not_checked(workspace: Workspace, partition: str) -> list[CheckNotPassed]:
    """Return the checks of answers whose verdicts are not about what there is now; what they found blocks nothing."""
    unchecked = []
    with unrecorded():
        for check in ANSWER_CHECK_NAMES:
            verdict = _verdict(workspace, ANSWER_CHECKS_TABLE, f"{partition}|{check}")
            committed = workspace.lake.committed(check.partition(".")[0], partition=partition)
            why = _why_not(verdict, committed, JUDGING_ANSWERS)
            unchecked += [CheckNotPassed(check, why)] if why and why != _FAILED else []
    return unchecked


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


def _verdict(workspace: Workspace, table: str, partition: str) -> Committed | None:
    return workspace.lake.committed(table, partition=partition)


def _why_not(verdict: Committed | None, checked: Committed | None, demands: str) -> str | None:
    if verdict is None or checked is None:
        return _NOT_RUN
    if verdict.details.get("of") != checked.version:
        return "not run on the newest materialisation"
    if verdict.details.get("declared") != demands:
        return "not run with the ranges that the audit file declares now"
    return None if verdict.details["passed"] else _FAILED
