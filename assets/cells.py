"""One encoder on one dataset as it is stored, and its identity."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import dagster as dg
import numpy as np
import polars as pl
from numpy.typing import NDArray

from assets.asked_cells import cell_mitigations, cell_suites, declaration_of
from assets.checks import must_pass
from assets.gates import require_passed
from assets.images import stored_embeddings
from assets.partitions import cell_of
from plumbline.catalog.suites import Suite
from plumbline.datasets.filters import chosen_filters, row_filter
from plumbline.datasets.records import Declaration
from plumbline.digests import digest_json
from plumbline.encoders.families import FAMILIES as ENCODER_FAMILIES
from plumbline.encoders.families import Capability, Family
from plumbline.errors import StorageError
from plumbline.metrics.cell import Cell, build_cell, personal_attributes, without_small_groups
from plumbline.metrics.family import with_lineage
from plumbline.metrics.registry import FAMILIES
from plumbline.mitigations.judging import judge_mitigations
from plumbline.mitigations.retrieval import retrieval_rows
from plumbline.mitigations.settings import METHODS, MitigationSettings, words_digest
from plumbline.provenance.code_versions import code_version
from plumbline.recording import unrecorded
from plumbline.storage import Committed
from resources.workspace import Workspace

_READING = ("assets.cells", "plumbline.encoders.families")
FAMILY_VERSIONS = {
    name: code_version(family.compute, build_cell, Declaration, shells=[*_READING, "assets.metrics"])
    for name, family in FAMILIES.items()
}
"""Metric family -> version of the code that makes its rows of a stored cell."""
JUDGING_VERSION = code_version(
    build_cell,
    judge_mitigations,
    retrieval_rows,
    Declaration,
    shells=[
        *_READING, "assets.asked_cells", "assets.metrics", "assets.mitigated", "assets.adjustments",
        "assets.mitigation_fits", "assets.text_mitigations", "plumbline.mitigations.possible",
    ],
)  # fmt: skip
"""Version of the code that judges a mitigation by its features or logits."""
_OF_THE_MODEL = (
    "checkpoint", "weights_sha256", "family", "logit_scale", "engine", "images", "records_sha256",
)  # fmt: skip
CELL_TABLES = (*FAMILIES, "mitigated_metrics")
"""The assets that hold metric rows of a cell."""


@dataclass(frozen=True)
class StoredCell:
    """A cell as it is in the lake, by manifests that were read once, so that what is used belongs together.

    Attributes
    ----------
    records, extended, logits : Committed
        Of `records`, `extended_records` and `probe_logits`.
    """

    workspace: Workspace
    dataset: str
    model: str
    records: Committed
    extended: Committed
    logits: Committed

    @classmethod
    def find(cls, workspace: Workspace, dataset: str, model: str) -> "StoredCell":
        """Read the manifests of a cell.

        Raises
        ------
        StorageError
            If one is missing, or logits and labels were computed on other records than those of now.
        """
        lake = workspace.lake
        with unrecorded():  # of the logits only what is used counts; see `read`
            logits = lake.require("probe_logits", partition=f"{dataset}|{model}")
        cell = cls(
            workspace=workspace,
            dataset=dataset,
            model=model,
            records=lake.require("records", partition=dataset),
            extended=lake.require("extended_records", partition=dataset),
            logits=logits,
        )
        if "engine" not in cell.logits.details:
            raise StorageError(
                "the logits of this cell were stored by an earlier version of Plumbline",
                where=cell.partition,
                hint="run `plumbline audit`",
            )
        workspace.note("model_of_cell", dataset, model, value=cell.about_model)
        used = {name: getattr(cell, name).details["records_sha256"] for name in ("logits", "extended")}
        if set(used.values()) != {cell.records.sha256}:
            raise StorageError(
                "logits, labels and records of this cell do not belong together",
                where=cell.partition,
                found=f"logits of {used['logits'][:12]}, labels of {used['extended'][:12]}",
                expected=f"records {cell.records.sha256[:12]}",
                hint="run `plumbline audit`, or materialise the stale assets of this cell",
            )
        return cell

    @property
    def partition(self) -> str:
        """Return the partition key, `dataset|encoder`."""
        return f"{self.dataset}|{self.model}"

    @property
    def family(self) -> Family:
        """Return the encoder's family."""
        return ENCODER_FAMILIES[self.logits.details["family"]]

    @property
    def about_model(self) -> list[object]:
        """Return what the logits say of the model: checkpoint, family, scale, engine, and the records it was run on."""
        return [self.logits.details[name] for name in _OF_THE_MODEL]

    @cached_property
    def suites(self) -> tuple[Suite, ...]:
        """Return the suites that the audit file asks of this cell."""
        return cell_suites(self.workspace, self.dataset, self.model, family=self.family)

    def suites_of(self, families: Collection[str]) -> dict[str, str]:
        """Return suite id -> hash of the suites of some families that the audit file asks of this cell."""
        with unrecorded():
            suites = {suite.id: suite.hash for suite in self.suites if suite.family in families}
        self.workspace.note("suites_of_cell", self.dataset, self.model, sorted(families), value=suites)
        return suites

    @cached_property
    def mitigations(self) -> dict[str, MitigationSettings]:
        """Return the mitigations that the audit file tries on this cell, by id."""
        return cell_mitigations(self.workspace, self.dataset, self.model, family=self.family)

    @cached_property
    def filters(self) -> dict[str, str]:
        """Return suite id -> named row filter: the audit file's, or the dataset's own."""
        declared = declaration_of(self.workspace, self.dataset)
        chosen = self.workspace.dataset_entry(self.dataset).filters
        with unrecorded():
            return chosen_filters(chosen, declared, [suite.id for suite in self.suites])

    @cached_property
    def identity(self) -> str:
        """Return the cell id: digest of data, labels, embeddings, prompts, filters, settings and code versions."""
        audit = self.workspace.audit
        return digest_json(
            {
                "dataset": [self.dataset, self.records.details["dataset_digest"], self.records.details["padding"]],
                "filters": {
                    s: [name, of.conditions, of.relabel, *([of.groups] if of.groups else [])]
                    for s, (name, of) in {s: (name, row_filter(name)) for s, name in self.filters.items()}.items()
                },
                "model": [self.model, self.logits.details["checkpoint"], self.logits.details["images"]],
                "labels": [self.extended.sha256, self.extended.details["labeller_digest"]],
                "suites": [suite.hash for suite in self.suites],
                "settings": [
                    audit.statistics.model_dump(mode="json"),
                    audit.thresholds.label_error,
                    {
                        name: [
                            settings.model_dump(mode="json"),
                            METHODS[settings.method].version,
                            *self._fitted_on(settings),
                        ]
                        for name, settings in self.mitigations.items()
                    },
                ],
                **({"own_code": own_versions} if (own_versions := self._own_code) else {}),
                "code": [self._versions, [JUDGING_VERSION, words_digest()] if self.mitigations else None],
            }
        )

    @property
    def _versions(self) -> dict[str, str]:
        """Return the versions of the families that read a suite of this cell; the others have no rows."""
        families = {suite.family for suite in self.suites}
        return {name: FAMILY_VERSIONS[name] for name, family in FAMILIES.items() if families & set(family.needs)}

    @property
    def _own_code(self) -> list[list[str]]:
        """Return the metrics of the audit file's own with the versions of their code."""
        return [[metric.name, metric.digest, *metric.suites] for metric in self.workspace.own_metrics]

    def _fitted_on(self, settings: MitigationSettings) -> list[str]:
        """Return the digests of the other datasets that a mitigation is fitted on, as far as they were read."""
        committed = [self.workspace.lake.committed("records", partition=dataset) for dataset in settings.datasets]
        return [one.details["dataset_digest"] for one in committed if one is not None]

    def read(self, *, suites: Collection[str] | None = None) -> Cell:
        """Return the cell's records, labels and logits; of all suites that are asked of it, or of those named.

        Of the logits, those to the suites that are returned count as read.

        Raises
        ------
        StorageError
            If something stored is damaged or not of one length.
        """
        lake = self.workspace.lake
        if suites is None:
            chosen_suites = self.suites
        else:
            with unrecorded():  # who names suites has noted them
                chosen_suites = tuple(suite for suite in self.suites if suite.id in suites)
        responses = self.logits.details.get("responses", {})
        for suite in chosen_suites:
            self.workspace.note("responses", self.dataset, self.model, suite.id, value=responses.get(suite.id))
        chosen = {suite.id for suite in chosen_suites}
        return build_cell(
            model=self.model,
            dataset=self.dataset,
            records=lake.read_table("extended_records", manifest=self.extended),
            arrays=lake.scan_arrays(self.logits),
            texts=self.logits.details["texts"],
            suites=chosen_suites,
            filters={suite: row_filter(name) for suite, name in self.filters.items() if suite in chosen},
            shared_space=Capability.EMBED_IMAGES in self.family.offers,
            scaled=self.family.logit == "scaled_cosine",
            logit_scale=self.logits.details["logit_scale"],
            images=self._control_images(),
            columns=self.logits.details["suites"] if self.family.logit == "stored" else None,
        )

    def _control_images(self) -> NDArray[np.float32] | None:
        """Return the image embeddings of a control: a dataset without classes, whose spread is what is asked for."""
        if declaration_of(self.workspace, self.dataset).base_attribute:
            return None
        if Capability.EMBED_IMAGES not in self.family.offers:
            return None
        with unrecorded():  # the logits say of which images they are
            committed = self.workspace.lake.require("image_embeddings", partition=self.partition)
        if committed.details["images"] != self.logits.details["images"]:
            raise StorageError(
                "logits and image embeddings of this cell do not belong together",
                where=self.partition,
                hint="run `plumbline audit`, or materialise `probe_logits` of this cell again",
            )
        return stored_embeddings(self.workspace, committed)

    def with_lineage(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Fill the lineage columns of metric rows of this cell; `cell_id` and `audit_id` follow in `metric_table`.

        Numbers of groups that are too small to be shown are removed.
        """
        if (least := self.workspace.dataset_entry(self.dataset).least_shown) > 1:
            records = self.workspace.lake.read_table("extended_records", manifest=self.extended)
            frame = without_small_groups(frame, personal_attributes(records), least=least)
        return with_lineage(
            frame,
            dataset_digest=self.records.details["dataset_digest"],
            checkpoint_sha256=self.logits.details["weights_sha256"],
            labeller_sha256=self.extended.details["labeller_sha256"],
        )


def passed_cell(context: dg.AssetExecutionContext, workspace: Workspace) -> StoredCell:
    """Return the running cell, whose dataset has passed its checks; refuses it otherwise."""
    dataset, model = cell_of(context)
    with unrecorded():
        require_passed(workspace, dataset, of=must_pass(workspace, dataset))
    return StoredCell.find(workspace, dataset, model)
