"""The plan of an audit's encoders, from its audit file, its datasets and what has been embedded already."""

from collections.abc import Iterator, Mapping

from assets.cells import cell_suites
from assets.dataset_size import images_of, recorded
from plumbline.encoders.outline import Outline, outline
from plumbline.encoders.plan import EncoderPlan, PlannedCell
from plumbline.tables.dataset_sizes import DatasetSize
from resources.places import Places


def plan_encoders(places: Places, absent: Mapping[str, DatasetSize]) -> EncoderPlan:
    """Plan what goes through the encoders of the audit file; no model is loaded.

    Encoders of one checkpoint and family share their embeddings: the first of them is planned with them.

    Parameters
    ----------
    absent : mapping of str to DatasetSize
        Published sizes of the datasets that are not on this disk.
    """
    outlines: dict[str, Outline] = {}
    counted: dict[str, int] = {}
    embedded: set[tuple[str, str, str]] = set()
    planned = []
    for dataset, encoder in _wanted(places):
        if encoder not in outlines:
            outlines[encoder] = _outline(places, encoder)
        if dataset not in counted:
            counted[dataset] = absent[dataset].images if dataset in absent else images_of(places, dataset)
        found, address = outlines[encoder], places.audit.encoders[encoder].address
        suites = cell_suites(places, dataset, encoder, family=found.family)
        of_checkpoint = (dataset, address, found.family.name)
        planned.append(
            PlannedCell(
                dataset=dataset,
                encoder=encoder,
                images=counted[dataset],
                prompts=tuple(len(suite.texts) for suite in suites),
                distinct_prompts=len({text for suite in suites for text in suite.texts}),
                logit=found.family.logit,
                width=found.width,
                is_there=(found.family.logit != "pair" and of_checkpoint in embedded)
                or _is_there(places, dataset, encoder, pair=found.family.logit == "pair"),
            )
        )
        embedded.add(of_checkpoint)
    return EncoderPlan(planned)


def _wanted(places: Places) -> Iterator[tuple[str, str]]:
    """Yield every cell, and the labeller on every dataset that is read: it labels genders there."""
    audit = places.audit
    yield from audit.cells
    for dataset in audit.used_datasets if audit.labeller else ():
        if (dataset, audit.labeller) not in audit.cells:
            yield dataset, audit.labeller


def _outline(places: Places, encoder: str) -> Outline:
    entry = places.audit.encoders[encoder]
    return outline(encoder, entry.address, places.checkpoint_folder(entry.address), family=entry.family)


def _is_there(places: Places, dataset: str, encoder: str, *, pair: bool) -> bool:
    """Say whether an earlier run ended with these images; whether weights changed since is for the audit to see."""
    lake = places.lake
    records = recorded(places, dataset)
    made = [lake.committed("probe_logits" if pair else "image_embeddings", partition=f"{dataset}|{encoder}")]
    if encoder == places.audit.labeller:
        labelled = lake.committed("extended_records", partition=dataset)
        made.append(labelled if labelled and labelled.details["labeller"] == encoder else None)
    return records is not None and any(
        one is not None and one.details["records_sha256"] == records.sha256 for one in made
    )
