"""What the audit file asks of one encoder on one dataset: suites and mitigations."""

from collections.abc import Iterator

from assets.stored_predictions import held_by, left_out_of_stored, require_held
from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, shows_mitigation, zero_shot_suite
from plumbline.checkpoints.addresses import STORED
from plumbline.datasets.records import Declaration, Entry
from plumbline.digests import digest_json
from plumbline.encoders.families import FAMILIES, Capability, Family, answers, require, require_suites
from plumbline.encoders.stored_embeddings import EmbeddingsSettings, stored_family
from plumbline.errors import ConfigError, PlumblineError
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import SUITES, may_adjust
from plumbline.mitigations.settings import METHODS, MitigationSettings
from plumbline.reasons import in_words, joined, reason
from plumbline.recording import unrecorded
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
        for require_possible in (require_answered, require_mitigations):
            try:
                if encoder in families:
                    require_possible(workspace, dataset, encoder, family=families[encoder])
            except PlumblineError as error:
                wrong.setdefault(encoder, {}).setdefault(str(error), error)
    return {encoder: PlumblineError.all_of([*errors.values()]) for encoder, errors in wrong.items()}


def left_out(workspace: Workspace) -> dict[tuple[str, str], str]:
    """Return (dataset, encoder) -> why suites or mitigations have no numbers there, where images were seen elsewhere.

    Raises
    ------
    CheckpointError
        If there is nothing stored at an address.
    """
    reasons_of = {}
    for dataset, model in workspace.audit.cells:
        entry = workspace.audit.encoders[model]
        if not entry.address.startswith(STORED):
            continue
        path = workspace.checkpoint_folder(entry.address)
        family = FAMILIES[stored_family(path, entry.embeddings or EmbeddingsSettings())]
        wanted = [*_asked_suites(workspace, dataset, model, family=family)]
        answered = {suite.id for suite in cell_suites(workspace, dataset, model, family=family)}
        lacking = [suite for suite in wanted if suite.id not in answered]
        audit = workspace.audit
        untried = [
            name
            for name in audit.mitigated.get((dataset, model), ())
            if not METHODS[audit.mitigations[name].method].needs <= family.offers
        ]
        reasons = joined(
            left_out_of_stored(workspace, model, lacking, family=family) if lacking else None,
            reason("needs_model", mitigations=untried)
            if untried and Capability.EMBED_IMAGES in family.offers
            else None,
        )
        if reasons:
            reasons_of[dataset, model] = str(in_words(reasons))
    return reasons_of


def cell_mitigations(
    workspace: Workspace, dataset: str, model: str, *, family: Family
) -> dict[str, MitigationSettings]:
    """Return id -> settings of the mitigations that the audit file tries on a cell.

    Those that it names, and by default all that the family allows; none where no suite shows what they change.
    """
    audit = workspace.audit
    tried = audit.mitigated.get((dataset, model), {})
    if not tried:  # no prompt decides anything then
        return {}
    judged = _is_judged(workspace, dataset, model, family)
    return {
        name: audit.mitigations[name]
        for name, named in tried.items()
        if named or (judged and METHODS[audit.mitigations[name].method].needs <= family.offers)
    }


def require_mitigations(workspace: Workspace, dataset: str, model: str, *, family: Family) -> None:
    """Refuse a mitigation that the audit file names for a cell where it cannot be tried or judged.

    Raises
    ------
    ConfigError
        If the encoder's family lacks what it needs, or no suite of the cell would show what it changes.
    """
    audit = workspace.audit
    judged = _is_judged(workspace, dataset, model, family)
    for name, named in audit.mitigated.get((dataset, model), {}).items():
        if not named:
            continue
        require(family, METHODS[audit.mitigations[name].method].needs, f"the mitigation `{name}`")
        if not judged:
            raise ConfigError(
                f"nothing would show what the mitigation `{name}` changes",
                where=f"{dataset}|{model}",
                found="no outcome suite and no Trident suite",
                expected="a suite such as crime, communion, agency or trident for the same dataset and encoder",
            )
        settings = audit.mitigations[name]
        suites = cell_suites(workspace, dataset, model, family=family)
        labels = audit.grouped_by(dataset)
        if isinstance(settings, LogitAdjustmentSettings) and not any(
            may_adjust(suite, settings, labels=labels) for suite in suites
        ):
            raise ConfigError(
                f"the mitigation `{name}` has nothing to be fitted on",
                where=f"{dataset}|{model}",
                found=f"suites {', '.join(suite.id for suite in suites)}; labels {', '.join(sorted(labels)) or 'none'}",
                expected="labels of race and gender, and crime or an own suite with candidates of the category "
                f"`demographic`; or {SUITES[settings.candidates]}",
                hint="leave it out for this dataset, or ask such a suite",
            )


def _is_judged(workspace: Workspace, dataset: str, model: str, family: Family) -> bool:
    """Return whether a suite of the cell shows what a mitigation changes."""
    return any(shows_mitigation(s.id, s.family) for s in cell_suites(workspace, dataset, model, family=family))
