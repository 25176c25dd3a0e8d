"""Which suites two audits asked one cell with the same prompts, and which prompts of the others changed."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import polars as pl

from assets.asked_cells import cell_suites
from plumbline.catalog.suites import Suite, load_suite, suite_names
from plumbline.encoders.families import FAMILIES
from plumbline.metrics.text_space import TEXT
from plumbline.provenance.diff.tables import ChangedPrompts, StoredPrompts, changed_prompts
from plumbline.storage import Committed
from resources.workspace import Workspace

_OF_TEXTS = "perception"
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
        named = self.rows.drop_nulls(["suite", "suite_hash"]).select("suite", "suite_hash").unique()
        found: dict[str, set[str]] = {}
        for suite, digest in named.iter_rows():
            found.setdefault(suite, set()).add(digest)
        return found

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
            return (load_suite(_OF_TEXTS),)
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


def suites_with_other_prompts(old: AskedSuites, new: AskedSuites) -> list[ChangedPrompts]:
    """Return the suites that one model was asked with other prompts than before, by name."""
    sides = old.hashes, new.hashes
    changed = sorted(
        name
        for name in sides[0].keys() & sides[1].keys() & set(suite_names())
        if old.model == new.model and sides[0][name].isdisjoint(sides[1][name])
    )
    # What is stored of a text space are the prompts of every suite that there is.
    alone = len(changed) == 1 and new.dataset != TEXT
    return [changed_prompts(name, old.prompts(name), new.prompts(name), alone=alone) for name in changed]


def asked_suites_changed(old: Collection[str], new: Collection[str]) -> Iterator[str]:
    """Say which suites only one side was asked."""
    for said, only in (("asked now", set(new) - set(old)), ("no longer asked", set(old) - set(new))):
        if only:
            yield f"{said}: {', '.join(sorted(only))}"
