"""What the audit file asks of one encoder on one dataset: suites and mitigations."""

from assets.stored_predictions import left_out_of_predictions, prediction_table
from plumbline.catalog.suites import JUDGED, Suite, load_suite
from plumbline.checkpoints.addresses import STORED
from plumbline.datasets.records import Declaration
from plumbline.digests import digest_json
from plumbline.encoders.families import FAMILIES, Family, answers, require, require_suites
from plumbline.errors import ConfigError, PlumblineError
from plumbline.mitigations.settings import METHODS, MitigationSettings
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
    held = None
    if family.logit == "stored":
        with unrecorded():  # what it holds is part of the encoder's version
            held = prediction_table(workspace, dataset, model)
    audit, classes = workspace.audit, declaration_of(workspace, dataset).class_set
    wording = audit.encoders[model].wording or family.wording
    suites = (
        load_suite(name, classes=classes, wording=wording) if name.startswith("trident") else load_suite(name)
        for name in audit.cells.get((dataset, model), ())
    )
    return tuple(
        s
        for s in suites
        if (dataset, model, s.id) in audit.named or (answers(family, s) and (held is None or held.answers(s)))
    )


def require_answered(workspace: Workspace, dataset: str, model: str, *, family: Family) -> None:
    """Refuse suites that the audit file names for a cell whose encoder cannot answer them.

    Raises
    ------
    ConfigError
        If the family does not offer what a suite needs.
    EncodingError
        If stored predictions have nothing of a suite.
    """
    suites = cell_suites(workspace, dataset, model, family=family)
    require_suites(family, suites)
    if family.logit == "stored":
        prediction_table(workspace, dataset, model).require(suites)


def unusable_encoders(workspace: Workspace) -> dict[str, PlumblineError]:
    """Return the encoders that cannot be audited -> everything that is wrong with each."""
    wrong: dict[str, dict[str, PlumblineError]] = {}
    families: dict[str, Family] = {}
    audit = workspace.audit
    for encoder in dict.fromkeys([*([audit.labeller] if audit.labeller else []), *audit.used_encoders]):
        try:
            families[encoder] = FAMILIES[workspace.checkpoint(encoder).family]
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
    """Return (dataset, encoder) -> why suites have no numbers there, for encoders of stored predictions."""
    told = {}
    for (dataset, model), asked in workspace.audit.cells.items():
        if workspace.audit.encoders[model].address.startswith(STORED):
            answered = cell_suites(workspace, dataset, model, family=FAMILIES["stored"])
            if reason := left_out_of_predictions(asked, answered):
                told[dataset, model] = reason
    return told


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


def _is_judged(workspace: Workspace, dataset: str, model: str, family: Family) -> bool:
    """Return whether a suite of the cell shows what a mitigation changes."""
    return any(s.family in JUDGED for s in cell_suites(workspace, dataset, model, family=family))
