"""Two audits, or two checkpoints of one, cell by cell: which cells and prompts differ, and how."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from assets.answers import StoredAnswers
from assets.asked_cells import cell_suites
from assets.cells import StoredCell
from assets.language import language_settings
from assets.metrics import metric_settings
from plumbline.catalog.schema import Row
from plumbline.catalog.suites import Suite, load_suite, suite_names
from plumbline.encoders.families import FAMILIES
from plumbline.errors import ConfigError, PlumblineError
from plumbline.metrics.evidence import too_weak
from plumbline.metrics.registry import current_table
from plumbline.metrics.text_space import TEXT
from plumbline.provenance.diff import (
    DIFF_SCHEMA,
    FLIP_SCHEMA,
    StoredPrompts,
    causes_of_change,
    changed_cells,
    changed_prompts,
    flips,
    in_order_of,
    paired_answer_means,
    paired_answers,
    paired_differences,
    suite_hashes,
    table_differences,
    with_q,
)
from plumbline.storage import Committed
from resources.workspace import Workspace

_TEXT_SUITE = "perception"
"""The suite whose words text spaces are measured with."""


@dataclass(frozen=True)
class AskedSuites:
    """What one audit asked of one encoder on one dataset.

    Attributes
    ----------
    rows : DataFrame
        Of the audit's metric table, of this cell.
    """

    workspace: Workspace
    dataset: str
    model: str
    rows: pl.DataFrame

    @property
    def hashes(self) -> dict[str, set[str]]:
        """Return suite -> the hashes of its prompts that its numbers name."""
        return suite_hashes(self.rows)

    @property
    def stored(self) -> Committed | None:
        """Return the manifest that names the prompts of this cell."""
        if self.dataset == TEXT:
            return self.workspace.lake.committed("text_embeddings", partition=self.model)
        return self.workspace.lake.committed("probe_logits", partition=f"{self.dataset}|{self.model}")

    @property
    def of_today(self) -> tuple[Suite, ...]:
        """Return the suites as they are in this version, whatever they were for the audit."""
        if self.dataset == TEXT:
            return (load_suite(_TEXT_SUITE),)
        stored = self.stored
        if stored is None or (self.dataset, self.model) not in self.workspace.audit.cells:
            return ()
        family = FAMILIES[stored.details["family"]]
        return cell_suites(self.workspace, self.dataset, self.model, family=family)

    def prompts(self, suite: str) -> StoredPrompts:
        """Return the prompts of one suite, from what was stored or where they are still those of this version."""
        stored = self.stored
        every = () if stored is None else tuple(stored.details["texts"])
        columns = None if stored is None else stored.details.get("suites", {}).get(suite)
        if columns is not None:
            return StoredPrompts([every[i] for i in columns], every)
        now = {each.id: each for each in self.of_today}.get(suite)
        known = now is not None and now.hash in self.hashes.get(suite, ())
        return StoredPrompts(now.texts if now is not None and known else None, every)


def comparable_suites(old: AskedSuites, new: AskedSuites) -> set[str]:
    """Return the suites whose answers of both sides can be read: they were asked with the prompts of this version.

    One model is asked the same in both audits; two models of one audit are each asked in the wording of their family.
    """
    read = [
        {suite.id: suite.hash for suite in side.of_today if suite.hash in side.hashes.get(suite.id, ())}
        for side in (old, new)
    ]
    both = read[0].keys() & read[1].keys()
    return {name for name in both if old.model != new.model or read[0][name] == read[1][name]}


def suites_with_other_prompts(old: AskedSuites, new: AskedSuites) -> dict[str, str]:
    """Return the suites that one model was asked with other prompts than before, each with what changed."""
    sides = old.hashes, new.hashes
    changed = sorted(
        name
        for name in sides[0].keys()
        & sides[1].keys()
        & {*suite_names(), *(suite.id for side in (old, new) for suite in side.workspace.own_suites)}
        if old.model == new.model and sides[0][name].isdisjoint(sides[1][name])
    )
    # What is stored of a text space are the prompts of every suite that there is.
    alone = len(changed) == 1 and new.dataset != TEXT
    return {name: changed_prompts(name, old.prompts(name), new.prompts(name), alone=alone) for name in changed}


def asked_suites_changed(old: Collection[str], new: Collection[str]) -> Iterator[str]:
    """Say which suites only one side was asked."""
    for change, only in (("asked now", set(new) - set(old)), ("no longer asked", set(old) - set(new))):
        if only:
            yield f"{change}: {', '.join(sorted(only))}"


_PROMPTS, _OTHER = "prompts", "settings or code"


@dataclass(frozen=True)
class AuditDiff:
    """What changed.

    Attributes
    ----------
    differences, flips : DataFrame
        In `DIFF_SCHEMA` and `FLIP_SCHEMA`.
    causes : dict of str to list of str
        `dataset|model` -> what is another one than before.
    absent : list of str
        What could not be compared image by image or set by set, with the reason; it may have several lines.
    not_compared : list of str
        What was not compared at all, with cell and reason: suites whose prompts changed, bias where a side is too weak
        to interpret.
    """

    differences: pl.DataFrame
    flips: pl.DataFrame
    causes: dict[str, list[str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    @classmethod
    def nothing(cls) -> "AuditDiff":
        """Return the diff of an audit with none before it."""
        return cls(pl.DataFrame(schema=DIFF_SCHEMA), pl.DataFrame(schema=FLIP_SCHEMA))


def cells_in_common(workspace: Workspace, old: str, new: str) -> set[tuple[str, str]]:
    """Return the datasets and models, as pairs, of which two audits both have numbers."""
    of = [current_table(workspace.of_audit(audit).lake.read_table("metric_table")) for audit in (old, new)]
    first, second = (set(table.select("dataset", "model").unique().iter_rows()) for table in of)
    return first & second


def compare_audits(
    workspace: Workspace, old: str, new: str, *, log: Callable[[str], None] = lambda _: None
) -> AuditDiff:
    """Compare the cells that two audits have with another content each.

    Parameters
    ----------
    old, new : str
        Audit ids.
    log : callable
        Is told of each cell before it is compared.
    """
    then, now = workspace.of_audit(old), workspace.of_audit(new)
    tables = [current_table(side.lake.read_table("metric_table")) for side in (then, now)]
    pairs = [
        (AskedSuites(then, cell.dataset, cell.model, cell.old), AskedSuites(now, cell.dataset, cell.model, cell.new))
        for cell in changed_cells(*tables)
    ]
    return _joined(pairs, log, otherwise=_labels(now, *tables))


def _labels(now: Workspace, old: pl.DataFrame, new: pl.DataFrame) -> str:
    """Return what changed in a cell in which nothing else did: the checkpoint that labels, or settings or code."""
    labeller = now.audit.labeller
    if labeller is None:
        return _OTHER
    of = [table.filter(pl.col("model") == labeller) for table in (old, new)]
    return f"the checkpoint that labels, {labeller}" if "the checkpoint" in causes_of_change(*of) else _OTHER


def compare_checkpoints(
    workspace: Workspace, audit_id: str, old: str, new: str, *, log: Callable[[str], None] = lambda _: None
) -> AuditDiff:
    """Compare two models of one audit on every dataset that both were audited on.

    Raises
    ------
    ConfigError
        If they have no dataset in common.
    """
    then = workspace.of_audit(audit_id)
    table = current_table(then.lake.read_table("metric_table"))
    of = {
        name: {key[0]: rows for key, rows in table.filter(pl.col("model") == name).group_by("dataset")}
        for name in (old, new)
    }
    both = sorted(of[old].keys() & of[new].keys())
    if not both:
        raise ConfigError(
            "these models have no dataset in common in this audit",
            where=audit_id[:12],
            found={name: ", ".join(map(str, sorted(datasets))) or "no numbers" for name, datasets in of.items()},
        )
    pairs = [(AskedSuites(then, str(d), old, of[old][d]), AskedSuites(then, str(d), new, of[new][d])) for d in both]
    return _joined(pairs, log)


def _joined(
    pairs: Sequence[tuple[AskedSuites, AskedSuites]], log: Callable[[str], None], *, otherwise: str = _OTHER
) -> AuditDiff:
    frames, flipped, causes, absent = [], [pl.DataFrame(schema=FLIP_SCHEMA)], {}, []
    not_compared: list[str] = []
    answered: dict[tuple[str, str], list[Row]] = {}
    for number, (old, new) in enumerate(pairs, start=1):
        dataset, names = new.dataset, (old.model, new.model)
        where = f"{dataset}|{new.model}"
        log(f"comparing {where} ({number} of {len(pairs)})")
        changed = suites_with_other_prompts(old, new)
        not_compared += [f"{suite} on {where}, since its prompts changed" for suite in changed]
        not_compared += _at_chance(old, new)
        paired: list[Row] = []
        try:
            if _generates(old) and _generates(new):
                if names not in answered:
                    answered[names] = _answers(old, new)
                paired = [row for row in answered[names] if row["dataset"] == dataset]
            elif _is_cell(old) and _is_cell(new):
                compared = _same_prompts(old, new)
                paired, flips_of_cell = compared.rows, compared.flips
                flipped.append(flips_of_cell)
                absent += [f"{where}: {why}" for why in compared.absent]
        except PlumblineError as error:
            absent.append(f"{where}: {error}")
        level = new.workspace.audit.statistics.confidence
        frames.append(table_differences(old.rows, new.rows, paired, models=names, confidence=level))
        causes[where] = list(_causes(old, new, changed)) or [otherwise]
    return AuditDiff(with_q(frames), pl.concat(flipped), causes, absent, not_compared)


def _at_chance(old: AskedSuites, new: AskedSuites) -> Iterator[str]:
    """Say of a cell that its bias was not compared, where a side is too weak to interpret."""
    weak = [too_weak(side.rows).height > 0 for side in (old, new)]
    if old.rows.is_empty() or new.rows.is_empty() or not any(weak):
        return
    where = new.dataset
    if old.model == new.model:
        where += f"|{new.model}"
        who = f"{new.model} {'was and is' if all(weak) else 'was' if weak[0] else 'is now'}"
    else:
        who = f"{old.model} and {new.model} are" if all(weak) else f"{old.model if weak[0] else new.model} is"
    yield f"bias on {where}, since {who} too weak to interpret there: no better than chance"


def _generates(side: AskedSuites) -> bool:
    return side.model in side.workspace.audit.asked_models


def _is_cell(side: AskedSuites) -> bool:
    return (side.dataset, side.model) in side.workspace.audit.cells


@dataclass(frozen=True)
class _ByImage:
    """What was compared image by image, and what could not be, with the reason."""

    rows: list[Row] = field(default_factory=list)
    flips: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FLIP_SCHEMA))
    absent: list[str] = field(default_factory=list)


def _same_prompts(old: AskedSuites, new: AskedSuites) -> _ByImage:
    """Compare the answers to the suites that both sides were asked with the prompts of this version."""
    suites = comparable_suites(old, new)
    same = {name for name, hashes in old.hashes.items() if hashes & new.hashes.get(name, set())}
    known = {suite.id for suite in new.of_today}
    absent = [
        f"the prompts of `{name}` have changed since both, so that only the two intervals are compared"
        for name in sorted((same & known) - suites)
    ]
    if not suites:
        return _ByImage(absent=absent)
    before, after = (
        StoredCell.find(side.workspace, side.dataset, side.model).read(suites=suites) for side in (old, new)
    )
    ordered = in_order_of(after, before)
    if ordered is None:
        return _ByImage(absent=[*absent, "not of the same images, so that only the two intervals are compared"])
    rows = paired_differences(ordered, after, settings=metric_settings(new.workspace))
    return _ByImage(rows, flips(ordered, after), absent)


def _answers(old: AskedSuites, new: AskedSuites) -> list[Row]:
    cells = [StoredAnswers.find(side.workspace, side.model).cell() for side in (old, new)]
    settings = language_settings(new.workspace)
    return paired_answers(*cells, settings=settings) + paired_answer_means(*cells, settings=settings)


def _causes(old: AskedSuites, new: AskedSuites, changed: Mapping[str, str]) -> Iterator[str]:
    """Name what is another one on the new side; what is in one of them alone is named so."""
    causes = causes_of_change(old.rows, new.rows)
    if old.rows.is_empty() or new.rows.is_empty():
        yield from causes
        return
    stored = [None if side.stored is None else side.stored.details.get("checkpoint") for side in (old, new)]
    if old.model == new.model and "the checkpoint" not in causes and None not in stored and stored[0] != stored[1]:
        causes.append("the checkpoint, but for its weights: its tokenizer, image processor or configuration")
    causes += changed.values()
    if _is_cell(old) and _is_cell(new):
        causes += asked_suites_changed(*(side.workspace.audit.cells[side.dataset, side.model] for side in (old, new)))
    elif not changed and old.model == new.model and old.hashes != new.hashes:
        causes.append(_PROMPTS)
    yield from causes
