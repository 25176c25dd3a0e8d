"""The one rule of what is up to date, for audits, `plumbline status`, the daemon and Dagster's own page.

A result is up to date when its code is that of its last computation, everything that it read then is the same now, and
what it stored is still there. The bytes of stored files are compared when they are read, and by `plumbline verify`.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from assets.answers import StoredAnswers
from assets.asked_cells import declaration_of
from assets.cells import CELL_TABLES, StoredCell
from assets.checks import must_pass
from assets.embeddings import StoredPrompts
from assets.gates import NOT_AUDITED, checks_not_passed, refusal
from assets.images import lost_shards
from assets.language import LANGUAGE_TABLES
from assets.recorded import CODE_VERSIONS
from assets.sources import dataset_versions
from plumbline.catalog.prompts import prompts_hash
from plumbline.catalog.suites import own_texts
from plumbline.catalog.word_lists import answer_words_digest
from plumbline.config.recorded import setting
from plumbline.digests import canonical_json, digest_file, digest_json
from plumbline.errors import PlumblineError, StorageError
from plumbline.mitigations.settings import METHODS, words_digest
from plumbline.own_code import code_digest
from plumbline.provenance.code_versions import parts_of
from plumbline.recording import short, unrecorded
from plumbline.report import AbsentCell
from plumbline.storage.builds import Build, damaged_output, read_build, read_code
from plumbline.storage.lake import recorded_audits
from plumbline.version import __version__
from resources.encoders import encoder_runtime
from resources.lvlms import backend_identity, scorer_version, usable_version
from resources.workspace import Workspace

NEVER = "not computed yet"
_CODE = "code"
_MOST_NAMED, _LONGEST = 3, 60


class CurrentCell(NamedTuple):
    """An encoder on a dataset, and the identity of the cell."""

    dataset: str
    encoder: str
    cell: str


class CurrentModel(NamedTuple):
    """A generative model, the identity of its answers, and the families of language metrics that hold."""

    model: str
    cell: str
    families: list[str]


@dataclass(frozen=True)
class Standing:
    """The audited cells and generative models, sorted.

    Attributes
    ----------
    current : list of CurrentCell
        Passed their checks, and up to date.
    absent : list of AbsentCell
        The others, each with its reason; a generative model without numbers is one of all its datasets.
    models : list of CurrentModel
        As `current`; families of language metrics that do not hold are in `absent`.
    """

    current: list[CurrentCell]
    absent: list[AbsentCell]
    models: list[CurrentModel] = field(default_factory=list)

    def as_json(self) -> list[Any]:
        """Return it as JSON."""
        return [self.current, [asdict(cell) for cell in self.absent], self.models]


class Present:
    """What is there now, each thing looked up once.

    Parameters
    ----------
    workspace : Workspace
    forced : collection of str
        Assets that count as out of date, whatever they were computed from.
    sources : Present, optional
        An earlier look whose digests of datasets and checkpoints still hold.
    """

    def __init__(self, workspace: Workspace, *, forced: Collection[str] = (), sources: "Present | None" = None) -> None:
        self.workspace, self._forced = workspace.at_once(), frozenset(forced)
        kept = {} if sources is None else sources._seen
        self._seen: dict[str, Any] = {key: value for key, value in kept.items() if key.startswith(_KEPT)}
        self._changes: dict[tuple[str, str], list[str]] = {}

    def changes(self, asset: str, partition: str = "") -> list[str]:
        """Return why a result is out of date, in words; nothing where it is up to date."""
        key = (asset, partition)
        if key not in self._changes:
            with unrecorded():
                self._changes[key] = list(self._why(asset, partition))
        return self._changes[key]

    def _why(self, asset: str, partition: str) -> Iterator[str]:
        build = read_build(self.workspace.lake, asset, partition)
        if build is None:
            yield NEVER
            return
        try:
            yield from self._changed(asset, build)
        except (StorageError, OSError) as error:
            yield f"what was stored cannot be read: {getattr(error, 'what', error)}"

    def _changed(self, asset: str, build: Build) -> Iterator[str]:
        if asset in self._forced:
            yield "asked for with --force"
        yield from _code_changes(self.workspace, build)
        lost = [*damaged_output(self.workspace.lake, build), *lost_shards(self.workspace, build)]
        yield from (f"{name} is not there as it was stored" for name in lost)
        changed = [read for read, value in build.inputs.items() if self.value(read) != value]
        yield from dict.fromkeys(self._described(read, build.inputs[read]) for read in changed)

    def value(self, read: str) -> Any:
        """Return what is there now of something that was read; a text that nothing else is where it cannot be found."""
        if read not in self._seen:
            kind, *arguments = json.loads(read)
            try:
                self._seen[read] = short(_LOOK[kind](self, *arguments))
            except (PlumblineError, LookupError, AttributeError, TypeError, ValueError, OSError) as error:
                self._seen[read] = f"gone: {type(error).__name__}"
        return self._seen[read]

    @property
    def folders(self) -> dict[str, str]:
        """Return dataset -> digest of its folder, of those that were looked at and can be read."""
        seen = {
            name: self._seen.get(canonical_json(["dataset_folder", name])) for name in self.workspace.audit.datasets
        }
        return {name: digest for name, digest in seen.items() if digest and not digest.startswith("gone:")}

    def _described(self, read: str, before: Any) -> str:
        kind, *arguments = json.loads(read)
        now = self.value(read)
        gone = isinstance(now, str) and now.startswith("gone:")
        if kind == "setting" and arguments[0] in _WHOLE_FILE:
            return "the audit file"
        if kind == "setting" and gone:
            entries = getattr(self.workspace.audit, arguments[0], None)
            whole = isinstance(entries, Mapping) and arguments[1:] and str(arguments[1]) not in entries
            return f"{_dotted(arguments[:2] if whole else arguments)} is not in the audit file any more"
        if kind == "setting":
            return f"setting {_dotted(arguments)}: {_plain(before)} → {_plain(now)}"
        words = _WORDS[kind].format(*(argument or "" for argument in arguments)).strip().removesuffix(" of")
        return f"{words} is gone" if gone else words

    @cached_property
    def standing(self) -> "Standing":
        """Return which cells and generative models have numbers that hold now."""
        with unrecorded():
            # What is forced is computed anew, and holds until then.
            present = Present(self.workspace, sources=self) if self._forced else self
            encoders, models = _cells(present), _models(present)
        return Standing(encoders.current, [*encoders.absent, *models.absent], models.models)

    def _stored(self, name: str, partition: str) -> str | None:
        committed = self.workspace.lake.committed(name, partition=partition)
        return None if committed is None else committed.version

    def _suites_of_cell(self, dataset: str, model: str, families: Collection[str]) -> dict[str, str]:
        stored = StoredCell.find(self.workspace, dataset, model)
        return stored.suites_of(families)

    def _responses(self, dataset: str, model: str, suite: str) -> str | None:
        logits = self.workspace.lake.require("probe_logits", partition=f"{dataset}|{model}")
        of_suite: str | None = logits.details["responses"].get(suite)
        return of_suite


def _cells(present: Present) -> Standing:
    workspace, standing = present.workspace, Standing([], [])
    for dataset, model in workspace.audit.cells:
        try:
            checks = checks_not_passed(workspace, dataset, of=must_pass(workspace, dataset))
            if refused := refusal(checks):
                raise PlumblineError(refused)
            partition = f"{dataset}|{model}"
            if workspace.lake.committed("probe_logits", partition=partition) is None:
                raise PlumblineError(NOT_AUDITED)
            _require_current(present, [("records", dataset), ("extended_records", dataset), ("text_embeddings", model)])
            _require_current(present, [(asset, partition) for asset in _OF_A_CELL])
            identity = StoredCell.find(workspace, dataset, model).identity
            standing.current.append(CurrentCell(dataset, model, identity))
        except PlumblineError as error:
            reason = _unreadable(workspace, model) or error.what
            standing.absent.append(AbsentCell(model=model, dataset=dataset, reason=reason))
    return standing


def _unreadable(workspace: Workspace, model: str) -> str | None:
    """Return all that is wrong with the checkpoint of an encoder; None where it can be read."""
    try:
        workspace.checkpoint(model, sizes=workspace.sizes)
    except PlumblineError as error:
        return error.in_short
    return None


_OF_A_CELL = ("image_embeddings", "probe_logits", *METHODS, *CELL_TABLES)


def _models(present: Present) -> Standing:
    workspace, standing = present.workspace, Standing([], [])
    by_model: dict[str, list[str]] = {}
    for model, dataset in workspace.audit.designs:
        by_model.setdefault(model, []).append(dataset)
    for model, datasets in by_model.items():
        try:
            for dataset in datasets:
                if refused := refusal(checks_not_passed(workspace, dataset, of=("records",)), of=dataset):
                    raise PlumblineError(refused)
            stored = StoredAnswers.find(workspace, model)
            _require_current(present, [("records", dataset) for dataset in datasets])
            _require_current(present, [("pictured_people", name) for name in stored.slices])
            answers = [(asset, f"{model}|{n}") for n in stored.slices for asset in ("generations", "toxicity_scores")]
            _require_current(present, answers)
            families = [name for name in LANGUAGE_TABLES if not present.changes(name, model)]
            if families:
                standing.models.append(CurrentModel(model, stored.identity, families))
            if lacking := [name for name in LANGUAGE_TABLES if name not in families]:
                raise PlumblineError(f"not computed, or out of date: {', '.join(lacking)}")
        except PlumblineError as error:
            reason = _unaskable(workspace, model) or error.what
            standing.absent.append(AbsentCell(model=model, dataset=", ".join(datasets), reason=reason))
    return standing


def _unaskable(workspace: Workspace, model: str) -> str | None:
    """Return all that is wrong with the checkpoint of a generative model; None where it can be read."""
    try:
        usable_version(workspace, model)
    except PlumblineError as error:
        return error.in_short
    return None


def _require_current(present: Present, results: Iterable[tuple[str, str]]) -> None:
    """Raise PlumblineError if one of these (asset, partition) is out of date."""
    by_asset = {asset: present.changes(asset, partition) for asset, partition in results}
    if lacking := [asset for asset, changes in by_asset.items() if changes == [NEVER]]:
        raise PlumblineError(f"not computed yet: {', '.join(lacking)}; run the audit again")
    if changes := list(dict.fromkeys(change for changes in by_asset.values() for change in changes)):
        raise PlumblineError(f"out of date: {_several(changes)}; run the audit again")


def require_up_to_date(workspace: Workspace, partition: str, assets: Collection[str]) -> None:
    """Refuse to work with results of a partition that are out of date.

    Raises
    ------
    StorageError
        With the assets, and what changed.
    """
    if workspace.past is not None:  # what is recorded together belongs together
        return
    present = Present(workspace)
    if changes := {asset: why for asset in assets if (why := present.changes(asset, partition))}:
        raise StorageError(
            f"out of date: {', '.join(changes)}",
            where=partition,
            found=_several(dict.fromkeys(change for why in changes.values() for change in why)),
            hint="materialise them again, or run `plumbline audit`",
        )


def _several(texts: Iterable[str]) -> str:
    first = list(texts)
    more = f", and {len(first) - _MOST_NAMED} more" if len(first) > _MOST_NAMED else ""
    return ", ".join(first[:_MOST_NAMED]) + more


def _code_changes(workspace: Workspace, build: Build) -> Iterator[str]:
    """Yield what of the code changed: modules, data files, libraries, Python."""
    now = CODE_VERSIONS.get(build.asset)
    if now is None or now == build.code:
        return
    old, new = read_code(workspace.lake, build.code), parts_of(now)
    if old is None or new is None:
        yield f"{_CODE} version {build.code} → {now}"
        return
    modules = []
    for part in sorted(old.keys() | new.keys()):
        if old.get(part) == new.get(part):
            continue
        if part == "python" or not ("." in part or "/" in part or part in ("plumbline",)):
            yield f"{'Python' if part == 'python' else part} {old.get(part, 'not used')} → {new.get(part, 'not used')}"
        else:
            modules.append(part)
    if modules:
        yield f"{_CODE} of {_several(modules)}"


def may_come_out_the_same(changes: Collection[str]) -> bool:
    """Return whether nothing but the code of a result changed, so that it may come out as it was."""
    return all(change.startswith(f"{_CODE} ") for change in changes)


def _dotted(path: list[Any]) -> str:
    steps = []
    for step in path:
        if isinstance(step, str):
            steps.append(step)
        elif "item" in step or "has" in step:
            key = step.get("item", step.get("has"))
            steps.append("|".join(map(str, key)) if isinstance(key, list) else str(key))
    return ".".join(steps[:-1] if steps[-1:] == ["model_dump"] else steps)


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_json(value)
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text


_LOOK: dict[str, Callable[..., Any]] = {
    "setting": lambda now, *path: setting(now.workspace.audit, list(path)),
    "stored": Present._stored,
    "dataset_folder": lambda now, name: dataset_versions(now.workspace, [name]).get(name),
    "declaration": lambda now, name: digest_json(repr(declaration_of(now.workspace, name))),
    "encoder_checkpoint": lambda now, name: now.workspace.checkpoint(name).version,
    "lvlm_checkpoint": lambda now, name: now.workspace.lvlm_version(name),
    "encoder_runtime": lambda now, name: encoder_runtime(now.workspace, name),
    "lvlm_identity": lambda now, name: backend_identity(now.workspace, name),
    "scorer": lambda now, name: scorer_version(now.workspace, name),
    "user_file": lambda now, path: digest_file(now.workspace.user_file(path)),
    "suite": lambda now, name, classes, wording: now.workspace.suite(name, classes=classes, wording=wording).hash,
    "own_code": lambda now, reference: code_digest(reference),
    "texts": lambda now: list(own_texts(now.workspace.own_suites).values()),
    "prompts": lambda now: prompts_hash(),
    "mitigation_texts": lambda now: words_digest(),
    "answer_words": lambda now: answer_words_digest(),
    "model_of_prompts": lambda now, encoder: StoredPrompts.find(now.workspace, encoder).about_model,
    "embedded_prompts": lambda now, encoder, suite: StoredPrompts.find(now.workspace, encoder).digests.get(suite),
    "model_of_cell": lambda now, dataset, model: StoredCell.find(now.workspace, dataset, model).about_model,
    "suites_of_cell": Present._suites_of_cell,
    "responses": Present._responses,
    "audits": lambda now: list(recorded_audits(now.workspace.lake)),
    "standing": lambda now: now.standing.as_json(),
    "report": lambda now: now.workspace.report.is_file(),
    "plumbline": lambda now: __version__,
    "delivered": lambda now: True,
    "tracking_store": lambda now: now.workspace.tracking_store,
}
"""Kind of read -> what looks the same up again."""
_WORDS = {
    "stored": "{0} of {1}",
    "dataset_folder": "the files of dataset {0}",
    "declaration": "what is declared of the dataset {0}",
    "encoder_checkpoint": "the checkpoint of {0}",
    "lvlm_checkpoint": "the checkpoint or endpoint of {0}",
    "encoder_runtime": "the libraries or the device that run {0}",
    "lvlm_identity": "the libraries or the device that run {0}",
    "scorer": "the scorer {0}",
    "user_file": "the file {0}",
    "suite": "the prompts of the suite {0}",
    "own_code": "your own code {0}, or what it imports",
    "texts": "the prompts of the suites",
    "prompts": "the prompts of generative models",
    "mitigation_texts": "the texts that mitigations work with",
    "answer_words": "the word lists that answers are read with",
    "model_of_prompts": "the model that embedded the prompts of {0}",
    "embedded_prompts": "the embedded prompts of the suite {1} by {0}",
    "model_of_cell": "the responses of {1} on {0}",
    "suites_of_cell": "the suites asked of {1} on {0}",
    "responses": "the responses of {1} on {0} to the suite {2}",
    "audits": "the audits before this one",
    "standing": "which cells and models have numbers",
    "report": "the report",
    "tracking_store": "the address of the MLflow store",
    "plumbline": "the version of Plumbline",
    "delivered": "MLflow has not taken the runs",
}
_SOURCES = ("dataset_folder", "encoder_checkpoint", "encoder_runtime", "lvlm_checkpoint", "lvlm_identity", "scorer")
_WHOLE_FILE = ("digest", "model_dump")
_KEPT = tuple(f'["{kind}"' for kind in _SOURCES)
