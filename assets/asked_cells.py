"""What the audit file asks of one encoder on one dataset: suites and mitigations."""

from collections.abc import Iterator
from typing import NamedTuple

from assets.stored_predictions import held_by, left_out_of_stored, require_held
from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite, zero_shot_suite
from plumbline.checkpoints.addresses import STORED
from plumbline.config.audit import Audit
from plumbline.datasets.records import Declaration, Entry
from plumbline.digests import digest_json
from plumbline.encoders.families import FAMILIES, Capability, Family, answers, require_suites
from plumbline.encoders.stored_embeddings import EmbeddingsSettings, stored_family
from plumbline.errors import PlumblineError
from plumbline.metrics.text_space import TEXT_SPACE_SUITES
from plumbline.mitigations.possible import is_judged, require_possible
from plumbline.mitigations.settings import METHODS, MitigationSettings
from plumbline.reasons import reason
from plumbline.recording import unrecorded
from plumbline.report import AbsentCell
from resources.workspace import Workspace


def declaration_of(workspace: Workspace, dataset: str) -> Declaration:
    """Return the data file of a dataset's reader."""
    with unrecorded():  # what it says counts, not where it is from
        declaration = workspace.dataset_entry(dataset).open_reader().declaration
    workspace.note("declaration", dataset, value=digest_json(repr(declaration)))
    return declaration


def cell_suites(workspace: Workspace, dataset: str, model: str, *, family: Family) -> tuple[Suite, ...]:
    """Return the suites that the audit file asks of a cell: those it names, and by default all that the family answers.

    The Trident ones are over the dataset's own label set, in the wording that the audit file names or the family has.
    """
    with unrecorded():  # what is stored is part of the encoder's version
        held = held_by(workspace, dataset, model, family=family)
    return tuple(
        suite
        for suite in _asked_suites(workspace, dataset, model, family=family)
        if (dataset, model, suite.id) in workspace.audit.named or (answers(family, suite) and held(suite))
    )


def class_labels(workspace: Workspace, dataset: str) -> tuple[str, ...]:
    """Return the classes of a dataset of things in order: of its records or else of what it lists; none if absent."""
    entry, committed = workspace.dataset_entry(dataset), workspace.lake.committed("records", partition=dataset)
    if committed is not None and committed.details.get("read_as") == entry.read_as:
        return tuple(committed.details["classes"])
    reader, root = entry.open_reader(), workspace.dataset_root(dataset)
    if not root.is_dir():
        return ()
    entries = (each for each in reader.entries(root) if isinstance(each, Entry))
    return tuple(sorted({label for each in entries if (label := reader.labels(each.raw).get("label"))}))


def _asked_suites(workspace: Workspace, dataset: str, model: str, *, family: Family) -> Iterator[Suite]:
    audit, classes = workspace.audit, declaration_of(workspace, dataset).class_set
    wording = audit.encoders[model].wording or family.wording
    for name in audit.cells.get((dataset, model), ()):
        if name == ZERO_SHOT:
            yield zero_shot_suite(class_labels(workspace, dataset), workspace.dataset_entry(dataset).zero_shot)
            continue
        of_labels = {"classes": classes, "wording": wording} if name in TRIDENT_SUITES else {}
        yield workspace.suite(name, **of_labels)


def require_answered(workspace: Workspace, dataset: str, model: str, *, family: Family) -> None:
    """Refuse suites that the audit file names for a cell whose encoder cannot answer them.

    Raises
    ------
    ConfigError
        If the family does not offer what a suite needs.
    EncodingError
        If stored predictions or embeddings have nothing of a suite.
    """
    suites = cell_suites(workspace, dataset, model, family=family)
    require_suites(family, suites)
    require_held(workspace, dataset, model, suites, family=family)


def unusable_encoders(workspace: Workspace) -> dict[str, PlumblineError]:
    """Return the encoders that cannot be audited -> everything that is wrong with each."""
    wrong: dict[str, dict[str, PlumblineError]] = {}
    families: dict[str, Family] = {}
    audit = workspace.audit
    for encoder in dict.fromkeys([*([audit.labeller] if audit.labeller else []), *audit.used_encoders]):
        try:
            families[encoder] = FAMILIES[workspace.checkpoint(encoder, sizes=workspace.sizes).family]
        except PlumblineError as error:
            wrong[encoder] = {str(error): error}
    for dataset, encoder in audit.cells:
        for require_able in (require_answered, require_mitigations):
            try:
                if encoder in families:
                    require_able(workspace, dataset, encoder, family=families[encoder])
            except PlumblineError as error:
                wrong.setdefault(encoder, {}).setdefault(str(error), error)
    return {encoder: PlumblineError.all_of([*errors.values()]) for encoder, errors in wrong.items()}


class LeftOut(NamedTuple):
    """Where images were seen elsewhere: why suites have no numbers, and why mitigations are not tried."""

    suites: list[AbsentCell]
    mitigations: list[AbsentCell]


def left_out(workspace: Workspace) -> LeftOut:
    """Return what is not computed where images were seen elsewhere, with the reasons.

    Raises
    ------
    CheckpointError
        If there is nothing stored at an address.
    """
    audit, absent = workspace.audit, LeftOut([], [])
    for dataset, model in audit.cells:
        entry = audit.encoders[model]
        if not entry.address.startswith(STORED):
            continue
        path = workspace.checkpoint_folder(entry.address)
        family = FAMILIES[stored_family(path, entry.embeddings or EmbeddingsSettings())]
        wanted = [*_asked_suites(workspace, dataset, model, family=family)]
        answered = {suite.id for suite in cell_suites(workspace, dataset, model, family=family)}
        if answered.intersection(TEXT_SPACE_SUITES) and Capability.EMBED_TEXTS in family.offers:
            # What is measured of texts alone has prompts beside those of the suite that was asked.
            beside = [load_suite(name) for name in TEXT_SPACE_SUITES if name not in answered]
            wanted += [suite for suite in beside if not held_by(workspace, dataset, model, family=family)(suite)]
        if lacking := [suite for suite in wanted if suite.id not in answered]:
            why = left_out_of_stored(workspace, model, lacking, family=family)
            absent.suites.append(AbsentCell(model, dataset, str(why)))
        untried = [name for name in audit.mitigated.get((dataset, model), ()) if not _is_offered(audit, name, family)]
        if untried and Capability.EMBED_IMAGES in family.offers:
            why = reason("needs_model", mitigations=untried)
            absent.mitigations.append(AbsentCell(model, dataset, str(why)))
    return absent


def cell_mitigations(
    workspace: Workspace, dataset: str, model: str, *, family: Family
) -> dict[str, MitigationSettings]:
    """Return id -> settings of the mitigations that the audit file tries on a cell.

    Those that it names, and by default all that the family allows; none where no suite shows what they change. What
    needs a model is not tried on stored embeddings: `left_out` says so.
    """
    audit = workspace.audit
    tried = audit.mitigated.get((dataset, model), {})
    if not tried:  # no prompt decides anything then
        return {}
    judged = is_judged(cell_suites(workspace, dataset, model, family=family))
    return {
        name: audit.mitigations[name]
        for name, named in tried.items()
        if (named and not _needs_model(workspace, model, name, family)) or (judged and _is_offered(audit, name, family))
    }


def require_mitigations(workspace: Workspace, dataset: str, model: str, *, family: Family) -> None:
    """Refuse a mitigation that the audit file names for a cell where it cannot be tried or judged.

    Raises
    ------
    ConfigError
        As `require_possible` does.
    """
    audit = workspace.audit
    for name, named in audit.mitigated.get((dataset, model), {}).items():
        if named and not _needs_model(workspace, model, name, family):
            require_possible(
                name,
                audit.mitigations[name],
                cell_suites(workspace, dataset, model, family=family),
                family=family,
                labels=audit.grouped_by(dataset),
                where=f"{dataset}|{model}",
            )


def _is_offered(audit: Audit, name: str, family: Family) -> bool:
    return METHODS[audit.mitigations[name].method].needs <= family.offers


def _needs_model(workspace: Workspace, model: str, name: str, family: Family) -> bool:
    """Return whether a mitigation is left out of what is stored: it embeds texts of its own."""
    audit = workspace.audit
    return audit.encoders[model].address.startswith(STORED) and not _is_offered(audit, name, family)
