"""Models that answer and scorers of what they say: loaded once, kept while they are used, never stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plumbline.checkpoints.device import Placement
from plumbline.digests import digest_json
from plumbline.errors import CheckpointError
from plumbline.generators.backend import Backend
from plumbline.http.keys import read_key
from plumbline.language.annotation_sheets import read_annotations
from plumbline.language.cell import Judge
from plumbline.language.lexicons import read_dictionaries
from plumbline.scorers.scorer import Scorer
from resources.places import PROJECT, Places

if TYPE_CHECKING:
    from plumbline.generators.endpoint import EndpointBackend
    from plumbline.http.settings import EndpointSettings


class LvlmPool:
    """The models and scorers of an audit; of the models the one used last stays in memory.

    Parameters
    ----------
    places : Places
        Says where checkpoints are and which device to use.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._backend: tuple[object, Backend] | None = None
        self._scorers: dict[str, tuple[object, Scorer]] = {}

    def backend(self, model: str) -> Backend:
        """Return a model whose weights are those on disk now, run as the audit file says now; else loads it again.

        Raises
        ------
        CheckpointError
            If the checkpoint is not on disk, does not load, or changes while it is being loaded.
        """
        entry, version = self._places.lvlm_entry(model), self._places.lvlm_version(model)
        key = (model, version, entry, placement_of(self._places))
        if self._backend is None or self._backend[0] != key:
            self._backend = None  # two large models at once would not fit
            self._backend = (key, self._load(model))
            if self._places.lvlm_version(model) != version:
                raise CheckpointError(
                    f"the checkpoint of `{model}` was replaced while it was loading",
                    hint="run again once the file is complete",
                )
        return self._backend[1]

    def _load(self, model: str) -> Backend:
        entry = self._places.lvlm_entry(model)
        if entry.endpoint is not None:
            return endpoint_backend(self._places, model, entry.endpoint)
        from plumbline.generators.folders import load_backend

        return load_backend(self._places.lvlm_files(model), placement_of(self._places))

    def scorer(self, name: str) -> Scorer:
        """Return a scorer of the audit file."""
        settings = self._places.audit.scorers[name]
        key = (scorer_version(self._places, name), placement_of(self._places))
        if name not in self._scorers or self._scorers[name][0] != key:
            loaded = settings.load(
                project=PROJECT, fetched=self._places.fetched, placement=placement_of(self._places)
            )
            self._scorers[name] = (key, loaded)
        return self._scorers[name][1]


def judge_of(places: Places) -> Judge | None:
    """Return the judge of stereotypes that the audit file names; None where it names none."""
    settings = places.audit.language.judge
    if settings is None:
        return None
    from plumbline.generators.judge import StereotypeJudge

    return StereotypeJudge(settings, places.judgements)


def endpoint_backend(places: Places, model: str, endpoint: EndpointSettings) -> EndpointBackend:
    """Return a model behind an endpoint, as it last said that it is."""
    from plumbline.generators.endpoint import EndpointBackend

    changed = places.endpoint_change(model)
    return EndpointBackend(endpoint, sees=model not in places.audit.twins, changed=changed)


def backend_identity(places: Places, model: str) -> str:
    """Return the identity that a generative model's answers are kept under; no weights are loaded."""
    entry = places.lvlm_entry(model)
    if entry.endpoint is not None:
        return endpoint_backend(places, model, entry.endpoint).identity
    from plumbline.generators.loaded_model import identity_from_files

    return identity_from_files(places.lvlm_files(model), placement_of(places))


def scorer_version(places: Places, name: str) -> str:
    """Return the version of a scorer: its settings, and the content of the files that it reads.

    Raises
    ------
    CheckpointError, ConfigError
        If a file is not there.
    """
    settings = places.audit.scorers[name]
    content = settings.content(project=PROJECT, fetched=places.fetched)
    return digest_json([settings.model_dump(mode="json"), content])


def require_askable(places: Places) -> None:
    """Refuse what could only fail later: models, scorers and files that are not there, keys that are not set.

    Raises
    ------
    PlumblineError
        With what is absent.
    """
    audit = places.audit
    endpoints = [entry.endpoint for entry in audit.lvlms.values() if entry.endpoint] + [audit.language.judge]
    keys = [endpoint.key_variable for endpoint in endpoints if endpoint]
    keys += [variable for settings in audit.scorers.values() for variable in settings.variables]
    for variable in filter(None, keys):
        read_key(variable)
    for model in audit.asked_models:
        places.lvlm_version(model)
    for name in audit.scorers:
        scorer_version(places, name)
    require_readable(places)


def require_readable(places: Places) -> None:
    """Read the dictionaries and annotations that the audit file names: a mistake in them is said before anything runs.

    Raises
    ------
    ConfigError
        With file and line.
    """
    said = places.audit.language
    if said.dictionaries is not None:
        read_dictionaries(places.user_file(said.dictionaries))
    if said.annotations is not None:
        read_annotations(places.user_file(said.annotations))


def placement_of(places: Places) -> Placement:
    """Return where and how the audit file runs generative models and scorers."""
    return Placement.choose(device=places.audit.device, dtype=places.audit.engine.dtype)
