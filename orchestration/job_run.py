"""One Dagster run of a job: executed and waited for, and why it failed."""

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import dagster as dg
from dagster._utils.error import SerializableErrorInfo

from assets.delivery import refusal
from orchestration.executors import Executed, execute
from orchestration.instance import OWNER


@dataclass
class TimeLimit:
    """A limit in seconds, and whether it has passed."""

    seconds: int
    passed: bool = False

    @property
    def message(self) -> str:
        """Say what happened and what to do, for the list of what failed."""
        return (
            f"the run took longer than {self.seconds} s and was ended; what is finished is kept. Run the same command "
            "to go on, or change `run_monitoring.max_runtime_seconds` in dagster.yaml"
        )


@contextmanager
def time_limit(seconds: int) -> Iterator[TimeLimit]:
    """Interrupt what runs inside, as Ctrl-C does, when the time is over; 0 is no limit.

    Like Ctrl-C it waits for code that never comes back to Python. Only the main thread of a process can be
    interrupted: elsewhere there is no limit.
    """
    limit = TimeLimit(seconds)

    def end(*_: object) -> None:
        limit.passed = True
        signal.raise_signal(signal.SIGINT)

    if not seconds or threading.current_thread() is not threading.main_thread():
        yield limit
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield limit
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


_INTERRUPTED = {"DagsterExecutionInterruptedError", "KeyboardInterrupt"}
# What Dagster puts before the message of an error.
_CLASS = re.compile(r"^(?:\w+\.)+\w+: ")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class JobRun(NamedTuple):
    """A run that has ended, and why it failed; None where it did not."""

    result: Executed
    failure: str | None

    @property
    def materialised(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield asset and metadata values of everything that it made."""
        for event in self.result.get_asset_materialization_events():
            metadata = event.materialization.metadata
            yield (
                event.materialization.asset_key.to_user_string(),
                {key: value.value for key, value in metadata.items()},
            )

    @property
    def warnings(self) -> Iterator[str]:
        """Yield the words of each check that did not pass and stops nothing."""
        for event in self.result.all_events:
            if event.event_type_value == "ASSET_CHECK_EVALUATION":
                check = event.asset_check_evaluation_data
                if not check.passed and check.severity == dg.AssetCheckSeverity.WARN:
                    yield f"warning: check {check.check_name}: {check.description}"

    @property
    def refusal(self) -> str | None:
        """Return why MLflow did not take what it sent; None where it did, or nothing was sent."""
        return next(filter(None, (refusal(metadata) for _, metadata in self.materialised)), None)


def run_job(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    job: str,
    partition: str | None,
    *,
    assets: Sequence[str] | None = None,
) -> JobRun:
    """Execute one run, of the whole job or of some of its assets, and wait for it.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted: Dagster ends the run and swallows the signal, and the rest must not go on.
    """
    with time_limit(instance.run_monitoring_max_runtime_seconds) as limit:
        result = execute(definitions, instance, job, partition, assets=assets, tags=OWNER, run_config=_QUIET)
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    failures += [event.job_failure_data.error for event in result.all_events if event.is_job_failure]
    if any(error.cls_name in _INTERRUPTED for failure in failures for error in _chain(failure)):
        if limit.passed:
            return JobRun(result, limit.message)
        raise KeyboardInterrupt
    return JobRun(result, None if result.success else _reason(result))


def _chain(error: SerializableErrorInfo | None) -> Iterator[SerializableErrorInfo]:
    while error is not None:
        yield error
        error = error.cause


def _said(error: SerializableErrorInfo) -> SerializableErrorInfo:
    """Return what the step raised: under Dagster's own wrapping, above what it was raised from."""
    chain = list(_chain(error))
    return next((one for one in chain if not (one.cls_name or "").startswith("Dagster")), chain[-1])


def _reason(result: Executed) -> str:
    """Return the messages of what failed, checks included, one a line."""
    reasons = []
    for event in result.all_events:
        if event.event_type_value == "ASSET_CHECK_EVALUATION":
            check = event.asset_check_evaluation_data
            if not check.passed:
                reasons.append(f"check {check.check_name} failed: {check.description}")
        elif event.is_step_failure:
            failure = event.step_failure_data
            error = _said(failure.error)
            if error.cls_name != "DagsterAssetCheckFailedError":  # said by the check itself, better
                data = failure.user_failure_data
                reasons.append(data.description if data and data.description else _message(error))
        # That a step failed is the reason that the run failed.
        elif event.is_job_failure and event.job_failure_data.error is not None and not reasons:
            reasons.append(_message(_said(event.job_failure_data.error)))
    return "\n        ".join(dict.fromkeys(reasons)) or "the run failed; see `plumbline ui`"


def _message(error: SerializableErrorInfo) -> str:
    """Return what an error says; without its class where it is one of this project, which says all there is to say."""
    message = error.message.strip()
    return _CLASS.sub("", message) if message.startswith("plumbline.") else message
