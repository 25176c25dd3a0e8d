"""Great Expectations on what was generated and scored: told in the UI and the report, blocking nothing.

A model that refuses or babbles is a finding, not a fault of the data: its metrics say with how many answers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg
import polars as pl

from assets.check_results import check_result, outcome_row
from assets.partitions import ANSWERS
from plumbline.language.tokens import (
    answer_shares,
    complete_sets,
    empty_answer,
    leading_source,
    not_english,
    scored_shares,
)
from plumbline.provenance.code_versions import code_version
from resources.quality import Quality
from resources.workspace import Workspace

_MOST_EMPTY, _MOST_FOREIGN, _LEAST_SCORED, _LEAST_COMPLETE = 0.05, 0.1, 0.99, 0.95
_READ_ROWS = 20_000
"""Answers whose language is looked at: every so many, where there are more."""


def _complete_sets(workspace: Workspace, partition: str) -> pl.DataFrame:
    return complete_sets(workspace.lake.read_table("pictured_people", partition=partition.partition("|")[2]))


def _empty(workspace: Workspace, partition: str) -> pl.DataFrame:
    return _of_answers(workspace, partition, empty_answer())


def _foreign(workspace: Workspace, partition: str) -> pl.DataFrame:
    return _of_answers(workspace, partition, not_english(pl.col("text")), most=_READ_ROWS)


def _of_answers(workspace: Workspace, partition: str, share: pl.Expr, *, most: int | None = None) -> pl.DataFrame:
    committed = workspace.lake.require("generations", partition=partition)
    every = 1 if most is None else max(1, committed.rows // most)
    return answer_shares(workspace.lake.scan_table(committed), share, every=every)


def _one_source(workspace: Workspace, partition: str) -> pl.DataFrame:
    return leading_source(workspace.lake.require("generations", partition=partition).details["sources"])


def _covered(workspace: Workspace, partition: str) -> pl.DataFrame:
    return scored_shares(workspace.lake.scan_table(workspace.lake.require("toxicity_scores", partition=partition)))


@dataclass(frozen=True)
class _Check:
    asset: str
    name: str
    description: str
    facts: Callable[[Workspace, str], pl.DataFrame]
    low: float
    high: float


_CHECKS = (
    _Check(
        "generations", "complete_sets",
        f"Of each subset at least {_LEAST_COMPLETE:.0%} of the counterfactual sets have an image of every group; the "
        "others are left out of MaxToxicity.",
        _complete_sets, _LEAST_COMPLETE, 1,
    ),
    _Check(
        "generations", "empty_answers",
        f"Of each prompt and instruction at most {_MOST_EMPTY:.0%} of the answers are empty without being refused.",
        _empty, 0, _MOST_EMPTY,
    ),
    _Check(
        "generations", "answers_in_english",
        f"Of each prompt and instruction at most {_MOST_FOREIGN:.0%} of the answers are seen to be in another language "
        "than English, that of word lists and scorers.",
        _foreign, 0, _MOST_FOREIGN,
    ),
    _Check(
        "generations", "one_source", "All answers are of one model, as the files or the endpoint say it.",
        _one_source, 1, 1,
    ),
    _Check(
        "toxicity_scores", "scorer_coverage",
        f"Each scorer scored at least {_LEAST_SCORED:.0%} of the answers, of each attribute.",
        _covered, _LEAST_SCORED, 1,
    ),
)  # fmt: skip

ANSWER_CHECKS_TABLE = "answer_checks"
JUDGING_ANSWERS = code_version(not_english, shells=[__name__, "assets.check_results"])
"""Version of the limits, and of how answers are judged: a verdict holds for these only."""


def furthest(frame: pl.DataFrame, *, highest: bool) -> str:
    """Say which share is nearest to the limit or furthest beyond it, whether it is within or not."""
    if frame.is_empty():
        return "there is nothing to look at"
    row = frame.sort("share", descending=highest).row(0, named=True)
    share = row.pop("share")
    # What an endpoint calls itself may be anything, and Dagster reads a description as Markdown.
    of = ", ".join(f"{name} {value}" for name, value in row.items() if name != "source")
    return f"{'highest' if highest else 'lowest'}: {share:.4g} of {of}"


def _asset_check(one: _Check) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=one.asset, name=one.name, description=one.description, blocking=False, partitions_def=ANSWERS)
    def check(
        context: dg.AssetCheckExecutionContext,
        workspace: dg.ResourceParam[Workspace],
        quality: dg.ResourceParam[Quality],
    ) -> dg.AssetCheckResult:
        partition = str(context.partition_key)
        frame = one.facts(workspace, partition)

        def expectations(gx: object) -> list:
            return [
                gx.ExpectColumnValuesToBeBetween(column="share", min_value=one.low, max_value=one.high)  # type: ignore[attr-defined]
            ]

        outcome = quality.validate(f"{partition.replace('|', '.')}.{one.name}", frame, expectations)
        note = furthest(frame, highest=one.low == 0)
        workspace.lake.write_table(
            ANSWER_CHECKS_TABLE,
            outcome_row(one.asset, one.name, one.description, frame, outcome, note=note),
            partition=f"{partition}|{one.asset}.{one.name}",
            details={
                "declared": JUDGING_ANSWERS,
                "passed": outcome.passed,
                "of": workspace.lake.require(one.asset, partition=partition).version,
            },
        )
        return check_result(frame, outcome, severity=dg.AssetCheckSeverity.WARN, note=note)

    return check


ANSWER_CHECKS = [_asset_check(one) for one in _CHECKS]
ANSWER_CHECK_NAMES = tuple(f"{one.asset}.{one.name}" for one in _CHECKS)
