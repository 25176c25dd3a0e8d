"""What the report needs besides the metric table: the audit, its datasets, its encoders, its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from plumbline.catalog.schema import QUARANTINE_SCHEMA, Schema
from plumbline.catalog.suites import MIXED_SUITES, Suite
from plumbline.datasets.extended import LABEL_SHARES_SCHEMA
from plumbline.datasets.grouping import WITHOUT_GROUP_SCHEMA
from plumbline.errors import MetricError
from plumbline.metrics.paired.mitigations import TRANSFER_SCHEMA
from plumbline.metrics.text_space import GEOMETRY_SCHEMA
from plumbline.report.changes import Changes
from plumbline.report.reading import AuditSummary
from plumbline.report.rows import in_order

LABEL_ERRORS_SCHEMA: Schema = {
    "group_by": pl.String,
    "group": pl.String,
    "n": pl.Int64,
    "errors": pl.Int64,
    "rate": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
}
NOTHING_DECLARED = "nothing is declared of it, so that nothing was checked"
"""What a check has observed that the audit file gives nothing to check."""
NOT_CHECKED = "not checked: "
"""Begins what a check has observed that had nothing to look at, before the reason; it passes, and is not counted."""
CHECKS_SCHEMA: Schema = {
    "check": pl.String,
    "passed": pl.Boolean,
    "observed": pl.String,
    "expected": pl.String,
    "link": pl.String,
}
PROVENANCE_SCHEMA: Schema = {
    "cell_id": pl.String,
    "model": pl.String,
    "dataset": pl.String,
    "dagster_run": pl.String,
    "mlflow_run": pl.String,
    "finished_at": pl.String,
    "forward_passes": pl.Int64,
    "cached_shards": pl.Int64,
    "device": pl.String,
}
PLANTED_SCHEMA: Schema = {
    "model": pl.String,
    "dataset": pl.String,
    "suite": pl.String,
    "event": pl.String,
    "attribute": pl.String,
    "group": pl.String,
    "planted": pl.Float64,
}


def _require(frame: pl.DataFrame, schema: Iterable[str], *, what: str) -> None:
    missing = [name for name in schema if name not in frame.columns]
    if missing:
        raise MetricError(
            f"the frame {what} of the report lacks columns",
            found=", ".join(frame.columns) or "no columns",
            expected=", ".join(schema),
            hint=f"add {', '.join(missing)}; an empty frame needs them too (pl.DataFrame(schema=...))",
        )


def check_result(passed: bool, observed: str | None) -> str:
    """Return what became of a data check in a word or two."""
    if observed == NOTHING_DECLARED:
        return "not asked for"
    if observed and observed.startswith(NOT_CHECKED):
        return "not checked"
    return "passed" if passed else "failed"


def _empty(schema: Schema) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(schema))


@dataclass(frozen=True)
class DatasetSummary:
    """One dataset: how it was read, what was refused, how its labels are spread and checked.

    Attributes
    ----------
    listed, accepted : int
        Rows the index or folder lists, and those that were accepted; the rest is in `quarantined`. A row is an image,
        or one of its captions or scenes.
    images : int
        Different images among the accepted rows.
    quarantined, without_group, label_shares, label_errors, checks : DataFrame
        Columns of `QUARANTINE_SCHEMA`, `WITHOUT_GROUP_SCHEMA`, `LABEL_SHARES_SCHEMA`, `LABEL_ERRORS_SCHEMA`,
        `CHECKS_SCHEMA`.
    planted : bool
        True for drawn faces with known biases, so that no reader takes them for people.
    absent_identities : str or None
        Name of the file that would say which pictures show one person, where it is not there.
    answers_by, answers_not_by : tuple of str
        Attributes by which answers of generative models about it are compared, and those by which they are not;
        nothing where none is asked.
    subsets : mapping of str to str
        Suite -> which of the images it is asked about, in words; without suites that are asked about all.
    """

    id: str
    reader: str
    listed: int
    accepted: int
    images: int
    digest: str
    quarantined: pl.DataFrame = field(default_factory=lambda: _empty(QUARANTINE_SCHEMA))
    without_group: pl.DataFrame = field(default_factory=lambda: _empty(WITHOUT_GROUP_SCHEMA))
    label_shares: pl.DataFrame = field(default_factory=lambda: _empty(LABEL_SHARES_SCHEMA))
    label_errors: pl.DataFrame = field(default_factory=lambda: _empty(LABEL_ERRORS_SCHEMA))
    checks: pl.DataFrame = field(default_factory=lambda: _empty(CHECKS_SCHEMA))
    planted: bool = False
    absent_identities: str | None = None
    subsets: Mapping[str, str] = field(default_factory=dict)
    answers_by: tuple[str, ...] = ()
    answers_not_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse frames that lack a column, naming it."""
        _require(self.quarantined, QUARANTINE_SCHEMA, what="quarantined")
        _require(self.without_group, WITHOUT_GROUP_SCHEMA, what="without_group")
        _require(self.label_shares, LABEL_SHARES_SCHEMA, what="label_shares")
        _require(self.label_errors, LABEL_ERRORS_SCHEMA, what="label_errors")
        _require(self.checks, CHECKS_SCHEMA, what="checks")

    @property
    def rows_are(self) -> str:
        """Return what its rows are, for a sentence: images, or rows where an image has several."""
        return "images" if self.images == self.accepted else "rows"

    @property
    def checks_in_words(self) -> str:
        """Return how many checks passed, of those that had something to look at, and how many had not."""
        results = [check_result(bool(row["passed"]), row["observed"]) for row in self.checks.to_dicts()]
        passed, failed = results.count("passed"), results.count("failed")
        text, without = f"{passed} of {passed + failed}", len(results) - passed - failed
        return f"{text}; {without} had nothing to check" if without else text


@dataclass(frozen=True)
class EncoderSummary:
    """One checkpoint.

    Attributes
    ----------
    address : str
        Where it was loaded from, such as `local-dir:path` or `ViT-B-32-quickgelu/openai`.
    parameters : int or None
        Number of weights, None when it was not counted.
    size, data_amount, source : str or None
        The factors of the checkpoint grid.
    labeller : bool
        True for the checkpoint that gives the automatic gender labels.
    choices_alone : bool
        True where no more is known of it than what it chose elsewhere: no mitigation can be tried.
    """

    id: str
    address: str
    family: str
    sha256: str
    parameters: int | None = None
    size: str | None = None
    data_amount: str | None = None
    source: str | None = None
    labeller: bool = False
    choices_alone: bool = False


@dataclass(frozen=True, kw_only=True)
class LvlmSummary:
    """One generative model.

    Attributes
    ----------
    address : str
        Where it was loaded from, or the model that an endpoint was asked for.
    version : str
        Digest of its files, or of what the endpoint was asked for.
    rows : int
        Answers in this report.
    unanswered : int
        Questions that were left out, since its stored answers have none to them.
    device, decoding : str
        Such as `cpu`, and how tokens were drawn.
    base_llm : str or None
        The language model that it was built on, where that was asked too.
    base_llm_of : tuple of str
        For a language model: the models that were built on it.
    scorers : mapping of str to bool
        Scorer -> whether it is only an offline stand-in; the first is the one of the headlines.
    judge : str or None
        The model that named stereotypes.
    checks : DataFrame
        Columns of `CHECKS_SCHEMA`: what was checked of its answers.
    planted : bool
        True for a model that was trained to say known words at known rates.
    """

    id: str
    address: str
    version: str
    rows: int
    device: str
    decoding: str
    base_llm: str | None = None
    base_llm_of: tuple[str, ...] = ()
    scorers: Mapping[str, bool] = field(default_factory=dict)
    judge: str | None = None
    checks: pl.DataFrame = field(default_factory=lambda: _empty(CHECKS_SCHEMA))
    planted: bool = False
    unanswered: int = 0


@dataclass(frozen=True)
class AbsentCell:
    """An encoder on a dataset that has no numbers in this report, and why."""

    model: str
    dataset: str
    reason: str


@dataclass(frozen=True)
class ReportInputs:
    """Everything that `render` reads besides the metric table.

    Attributes
    ----------
    datasets, encoders : tuple
        In the order in which the report shows them.
    provenance : DataFrame
        Columns of `PROVENANCE_SCHEMA`; joined to the metric rows on `cell_id`.
    planted_truth : DataFrame or None
        Columns of `PLANTED_SCHEMA`: rates that are known because they were planted.
    geometry : DataFrame or None
        Columns of `GEOMETRY_SCHEMA`: the words of each model's text space, of all models one after the other.
    not_tried : tuple of AbsentCell
        Mitigations that a cell does not allow, and what an audit in memory leaves out; the cell has numbers all the
        same.
    effects : DataFrame or None
        Columns of `plumbline.metrics.paired.comparisons.EFFECT_SCHEMA`.
    published : DataFrame or None
        Columns of `plumbline.report.comparison.COMPARISON_SCHEMA`.
    reproduction : DataFrame or None
        Columns of `plumbline.config.reproduction.REPRODUCTION_SCHEMA`.
    lvlms : tuple of LvlmSummary
        Generative models, in the order in which the report shows them.
    language : mapping of str to DataFrame
        Tables of language metrics by name, such as `word_associations`, of all models one after the other, each with
        a first column `model`.
    transfer : DataFrame or None
        Columns of `plumbline.metrics.paired.mitigations.TRANSFER_SCHEMA`: what each mitigation changes.
    changes : Changes or None
        What changed since the audit before; None where there was none.
    suites : tuple of Suite
        The prompt suites that encoders were asked.
    in_memory : bool
        Whether the audit was made in memory, without what only the pipeline does.
    """

    audit: AuditSummary
    datasets: tuple[DatasetSummary, ...]
    encoders: tuple[EncoderSummary, ...]
    absent: tuple[AbsentCell, ...] = ()
    not_tried: tuple[AbsentCell, ...] = ()
    provenance: pl.DataFrame = field(default_factory=lambda: _empty(PROVENANCE_SCHEMA))
    planted_truth: pl.DataFrame | None = None
    geometry: pl.DataFrame | None = None
    effects: pl.DataFrame | None = None
    published: pl.DataFrame | None = None
    reproduction: pl.DataFrame | None = None
    transfer: pl.DataFrame | None = None
    lvlms: tuple[LvlmSummary, ...] = ()
    language: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    changes: Changes | None = None
    suites: tuple[Suite, ...] = ()
    in_memory: bool = False

    def __post_init__(self) -> None:
        """Refuse frames that lack a column, naming it."""
        _require(self.provenance, PROVENANCE_SCHEMA, what="provenance")
        if self.planted_truth is not None:
            _require(self.planted_truth, PLANTED_SCHEMA, what="planted_truth")
        if self.geometry is not None:
            _require(self.geometry, GEOMETRY_SCHEMA, what="geometry")
        if self.transfer is not None:
            _require(self.transfer, TRANSFER_SCHEMA, what="transfer")

    def datasets_in(self, column: pl.Series) -> list[str]:
        """Return the datasets of a column in report order."""
        return in_order(column, tuple(dataset.id for dataset in self.datasets))

    @property
    def models(self) -> tuple[str, ...]:
        """Return the encoder ids in report order."""
        return tuple(encoder.id for encoder in self.encoders)

    @property
    def reading(self) -> AuditSummary:
        """Return the audit with the scorers of its generative models: how every estimate is read."""
        scorers = {name: stand_in for one in self.lvlms for name, stand_in in one.scorers.items()}
        stand_ins = tuple(name for name, stand_in in scorers.items() if stand_in)
        return replace(self.audit, scorers=tuple(scorers), stand_ins=stand_ins)

    @property
    def uses_automatic_gender(self) -> bool:
        """Return whether a test of mixed labels is asked, which rests on automatic gender labels."""
        return any(suite.id in MIXED_SUITES for suite in self.suites)

    @property
    def planted(self) -> tuple[str, ...]:
        """Return the ids of the planted datasets."""
        return tuple(dataset.id for dataset in self.datasets if dataset.planted)

    @property
    def all_planted(self) -> bool:
        """Return whether every dataset is planted."""
        return all(dataset.planted for dataset in self.datasets)
