"""The plan of an audit's encoders, from its audit file, its datasets and what has been embedded already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from assets.asked_cells import cell_suites
from assets.dataset_size import images_of, recorded
from plumbline.catalog.studies import DatasetSize
from plumbline.encoders.plan import ArchitectureSummary, EncoderPlan, PlannedCell, architecture_summary
from plumbline.storage import Committed
from resources.workspace import Workspace


def plan_encoders(workspace: Workspace, absent: Mapping[str, DatasetSize]) -> EncoderPlan:
    """Plan what goes through the encoders of the audit file; no model is loaded.

    Encoders of one checkpoint and family share their embeddings: the first of them is planned with them.

    Parameters
    ----------
    absent : mapping of str to DatasetSize
        Published sizes of the datasets that are not on this disk.
    """
    outlines: dict[str, ArchitectureSummary] = {}
    counted: dict[str, int] = {}
    embedded: set[tuple[str, str, str]] = set()
    planned = []
    for dataset, encoder in _wanted(workspace):
        if encoder not in outlines:
            outlines[encoder] = _outline(workspace, encoder)
        if dataset not in counted:
            counted[dataset] = absent[dataset].images if dataset in absent else images_of(workspace, dataset)
        found, address = outlines[encoder], workspace.audit.encoders[encoder].address
        suites = cell_suites(workspace, dataset, encoder, family=found.family)
        texts = {text for suite in suites for text in suite.texts}
        made, pair = _made(workspace, dataset, encoder), found.family.logit == "pair"
        of_checkpoint = (dataset, address, found.family.name)
        planned.append(
            PlannedCell(
                dataset=dataset,
                encoder=encoder,
                images=counted[dataset],
                prompts=tuple(len(suite.texts) for suite in suites),
                distinct_prompts=len(texts),
                logit=found.family.logit,
                width=found.width,
                is_there=made.logits if pair else made.embedded or of_checkpoint in embedded,
                has_records=made.records,
                # A cell that only labels genders writes the labels in place of an index.
                has_index=made.index if suites else made.labels,
                has_logits=made.logits and texts <= made.texts,
            )
        )
        embedded.add(of_checkpoint)
    return EncoderPlan(planned)


def _wanted(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Yield every cell, and the labeller on every dataset that is read: it labels genders there."""
    audit = workspace.audit
    yield from audit.cells
    for dataset in audit.used_datasets if audit.labeller else ():
        if (dataset, audit.labeller) not in audit.cells:
            yield dataset, audit.labeller


def _outline(workspace: Workspace, encoder: str) -> ArchitectureSummary:
    entry = workspace.audit.encoders[encoder]
    return architecture_summary(
        encoder, entry.address, workspace.checkpoint_folder(entry.address), family=entry.family
    )


@dataclass(frozen=True)
class _Made:
    """What earlier runs have written of a cell; whether weights changed since is for the audit to see."""

    records: bool = False
    index: bool = False
    labels: bool = False
    logits: bool = False
    texts: frozenset[str] = frozenset()

    @property
    def embedded(self) -> bool:
        """Return whether the images have gone through the image tower, to be embedded or to be labelled."""
        return self.index or self.labels


def _made(workspace: Workspace, dataset: str, encoder: str) -> _Made:
    records = recorded(workspace, dataset)
    if records is None:
        return _Made()

    def of_these(name: str, partition: str) -> Committed | None:
        one = workspace.lake.committed(name, partition=partition)
        return one if one is not None and one.details["records_sha256"] == records.sha256 else None

    cell = f"{dataset}|{encoder}"
    labelled = of_these("extended_records", dataset) if encoder == workspace.audit.labeller else None
    logits = of_these("probe_logits", cell)
    return _Made(
        records=True,
        index=of_these("image_embeddings", cell) is not None,
        labels=labelled is not None and labelled.details["labeller"] == encoder,
        logits=logits is not None,
        texts=frozenset(logits.details["texts"] if logits else ()),
    )
