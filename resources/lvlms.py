"""Models that answer and scorers of what they say: loaded once, kept while they are used, never stale."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from upath import UPath

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import require_unchanged
from plumbline.commands.places import here
from plumbline.datasets.preview import Preview
from plumbline.digests import digest_bytes, digest_json
from plumbline.errors import ConfigError, PlumblineError, StorageError
from plumbline.generators.backend import Backend
from plumbline.generators.design import asked_rows, pictured
from plumbline.http.settings import read_key
from plumbline.language.cell import Judge
from plumbline.language.user_files import read_annotations, read_dictionaries
from plumbline.provenance.code_versions import code_version
from plumbline.recording import unrecorded
from plumbline.scorers.scorer import Scorer
from plumbline.scorers.stored import StoredSettings
from plumbline.storage.files import commit_bytes
from resources.workspace import Workspace

if TYPE_CHECKING:
    from plumbline.generators.endpoint import EndpointBackend
    from plumbline.generators.folders import GeneratorFiles
    from plumbline.http.settings import EndpointSettings


class LvlmPool:
    """The models and scorers of an audit; of the models the one used last stays in memory.

    Parameters
    ----------
    workspace : Workspace
        Says where checkpoints are and which device to use.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._backend: tuple[object, Backend] | None = None
        self._scorers: dict[str, tuple[object, Scorer]] = {}

    def backend(self, model: str) -> Backend:
        """Return a model whose weights are those on disk now, run as the audit file says now; else loads it again.

        Raises
        ------
        CheckpointError
            If the checkpoint is not on disk, does not load, or changes while it is being loaded.
        """
        version = self._workspace.lvlm_version(model)
        with unrecorded():  # its version says what it is
            entry = self._workspace.lvlm_entry(model)
        key = (model, version, entry, placement_of(self._workspace))
        if self._backend is None or self._backend[0] != key:
            self._backend = None  # two large models at once would not fit
            with unrecorded():
                loaded = self._load(model)
            require_unchanged(model, version, self._workspace.lvlm_version(model))
            self._backend = (key, loaded)
        self._workspace.note("lvlm_identity", model, value=self._backend[1].identity)
        return self._backend[1]

    def _load(self, model: str) -> Backend:
        entry = self._workspace.lvlm_entry(model)
        if entry.endpoint is not None:
            return endpoint_backend(self._workspace, model, entry.endpoint)
        if entry.answers is not None:
            return self._workspace.stored_answers(model)
        from plumbline.generators.folders import load_backend

        return load_backend(self._workspace.lvlm_files(model), placement_of(self._workspace))

    def scorer(self, name: str) -> Scorer:
        """Return a scorer of the audit file."""
        with unrecorded():  # its version says what it is
            settings = self._workspace.audit.scorers[name]
        key = (scorer_version(self._workspace, name), placement_of(self._workspace))
        if name not in self._scorers or self._scorers[name][0] != key:
            loaded = settings.load(
                project=here(), fetched=self._workspace.fetched, placement=placement_of(self._workspace)
            )
            require_unchanged(name, key[0], scorer_version(self._workspace, name))
            self._scorers[name] = (key, loaded)
        return self._scorers[name][1]


def judge_of(workspace: Workspace) -> Judge | None:
    """Return the judge of stereotypes that the audit file names; None where it names none."""
    settings = workspace.audit.language.judge
    if settings is None:
        return None
    from plumbline.generators.judge import StereotypeJudge

    return StereotypeJudge(settings, workspace.judgements)


def endpoint_backend(workspace: Workspace, model: str, endpoint: EndpointSettings) -> EndpointBackend:
    """Return a model behind an endpoint, as it last said that it is."""
    from plumbline.generators.endpoint import EndpointBackend

    changed = workspace.endpoint_change(model)
    return EndpointBackend(endpoint, sees=model not in workspace.audit.base_llms, changed=changed)


def backend_identity(workspace: Workspace, model: str) -> str:
    """Return the identity that a generative model's answers are kept under; no weights are loaded.

    Tokenizer and image processor decide it, and transformers takes seconds to load them: what it was is kept in the
    home, by the model's files, the placement, and the versions of code and libraries.
    """
    entry = workspace.lvlm_entry(model)
    if entry.endpoint is not None:
        return endpoint_backend(workspace, model, entry.endpoint).identity
    if entry.answers is not None:
        return workspace.stored_answers(model).identity
    from plumbline.generators.loaded_model import identity_from_files, library_versions

    files, placement = workspace.lvlm_files(model), placement_of(workspace)
    decides = [files.digest, files.family, files.thinking, placement.dtype, placement.device_kind, library_versions()]
    kept = workspace.identities / digest_json([decides, code_version(identity_from_files)])
    if (known := _kept_identity(kept)) is not None:
        return known
    identity = identity_from_files(files, placement)
    with contextlib.suppress(StorageError):  # a home that may only be read: it is found again the next time
        commit_bytes(UPath(kept), f"{identity}\n{digest_bytes(identity.encode())}".encode())
    return identity


def _kept_identity(path: Path) -> str | None:
    """Return an identity that was kept; None where none is, or it is damaged."""
    try:
        identity, _, digest = path.read_text("utf-8").partition("\n")
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return identity if digest == digest_bytes(identity.encode()) else None


def scorer_version(workspace: Workspace, name: str) -> str:
    """Return the version of a scorer: its settings, and the content of the files that it reads.

    Raises
    ------
    CheckpointError, ConfigError
        If a file is not there.
    """
    with unrecorded():
        settings = workspace.audit.scorers[name]
        content = settings.content(project=here(), fetched=workspace.fetched)
        version = digest_json([settings.model_dump(mode="json"), content])
    workspace.note("scorer", name, value=version)
    return version


def unusable_models(workspace: Workspace) -> dict[str, PlumblineError]:
    """Return the generative models that cannot be asked -> everything that is wrong with each."""
    wrong = {}
    for model in workspace.audit.asked_models:
        try:
            usable_version(workspace, model)
        except PlumblineError as error:
            wrong[model] = error
    return wrong


def wrong_models(workspace: Workspace, previews: Mapping[str, Preview]) -> dict[str, str]:
    """Return every generative model that is asked anything -> what is wrong with its files, else an empty text.

    Parameters
    ----------
    previews : mapping of str to Preview
        Dataset -> what was read of it: stored answers are held against its images.
    """
    wrong = dict.fromkeys(workspace.audit.asked_models, "")
    for model in wrong:
        try:
            entry = workspace.lvlm_entry(model)
            if entry.address is not None:
                readable_files(workspace, model)
            if entry.answers is not None:
                _require_answered(workspace, model, previews)
        except PlumblineError as error:
            wrong[model] = str(error)
    return wrong


def _require_answered(workspace: Workspace, model: str, previews: Mapping[str, Preview]) -> None:
    """Refuse stored answers that cannot be read, or that lack questions about the images of a dataset.

    Of answers that name images by their sha256, the images that were looked at are asked for.
    """
    audit, stored = workspace.audit, workspace.stored_answers(model)
    stored.require_readable()
    for dataset, entries in audit.designs_of(model).items():
        if (seen := previews.get(dataset)) is None:
            continue
        by_path = model not in audit.base_llms and stored.names_any(seen.records["path"])
        records = seen.records if by_path else seen.seen
        if records is None or records.is_empty():
            continue
        # Which sets of an occupation are asked about goes by all their ids, of which those of pictures are not known.
        whole = records["set_id"].null_count() == 0 and by_path
        asked = [entry for entry in entries if whole or entry.sets_per_occupation is None]
        try:
            people = pictured(records, audit.declarations[dataset])
        except ConfigError:  # of the dataset, which is told by itself
            continue
        stored.answered(
            asked_rows(
                people,
                asked,
                identity=stored.identity,
                decoding=workspace.decoding(model),
                root=workspace.dataset_root(dataset),
                sees=model not in audit.base_llms,
                articles=audit.generation.articles,
            )
        )


def usable_version(workspace: Workspace, model: str) -> str:
    """Return the version of a generative model that can be asked; raises PlumblineError with all that is wrong."""
    if workspace.lvlm_entry(model).address is not None:
        readable_files(workspace, model)
    return workspace.lvlm_version(model)


def readable_files(workspace: Workspace, model: str) -> GeneratorFiles:
    """Return the files of a model on this disk, having read all that stands before it; no weights are loaded.

    Raises
    ------
    CheckpointError
        With everything that is wrong with its files; else if tokenizer, processor or chat template cannot be used.
    """
    files = workspace.lvlm_files(model, sizes=workspace.sizes)
    backend_identity(workspace, model)
    return files


def require_askable(workspace: Workspace) -> None:
    """Refuse what could only fail later: scorers and files that are not there, keys that are not set.

    Raises
    ------
    PlumblineError
        With what is absent.
    """
    audit = workspace.audit
    endpoints = [entry.endpoint for entry in audit.lvlms.values() if entry.endpoint] + [audit.language.judge]
    keys = [endpoint.key_variable for endpoint in endpoints if endpoint]
    keys += [variable for settings in audit.scorers.values() for variable in settings.variables]
    for variable in filter(None, keys):
        read_key(variable)
    for name in audit.scorers:
        scorer_version(workspace, name)
    require_readable(workspace)


def wrong_scoring(workspace: Workspace) -> list[PlumblineError]:
    """Return what is wrong with the files by which answers are scored and read; no model is loaded."""
    audit, wrong = workspace.audit, []
    if not audit.designs:
        return []
    checks: list[Callable[[], object]] = [partial(require_readable, workspace)]
    for name, settings in audit.scorers.items():
        checks.append(partial(scorer_version, workspace, name))
        if isinstance(settings, StoredSettings):
            checks.append(partial(settings.load, project=here(), fetched=workspace.fetched, placement=Placement()))
    for check in checks:
        try:
            check()
        except PlumblineError as error:
            if str(error) not in map(str, wrong):
                wrong.append(error)
    return wrong


def require_readable(workspace: Workspace) -> None:
    """Read the dictionaries and annotations that the audit file names: a mistake in them is said before anything runs.

    Raises
    ------
    ConfigError
        With file and line.
    """
    language = workspace.audit.language
    if language.dictionaries is not None:
        read_dictionaries(workspace.user_file(language.dictionaries))
    if language.annotations is not None:
        read_annotations(workspace.user_file(language.annotations))


def placement_of(workspace: Workspace) -> Placement:
    """Return where and how the audit file runs generative models and scorers."""
    return Placement.choose(device=workspace.audit.device, dtype=workspace.audit.engine.dtype)
