"""Models that answer and scorers of what they say: loaded once, kept while they are used, never stale."""

from __future__ import annotations

from plumbline.digests import digest_json
from plumbline.encoders.encoder import Placement
from plumbline.errors import CheckpointError
from plumbline.language.settings import Judge
from plumbline.lvlm.backend import Backend
from plumbline.scorers.scorer import Scorer
from resources.places import PROJECT, Places


class LvlmPool:
    """The models and scorers of an audit; the one used last stays in memory.

    Parameters
    ----------
    places : Places
        Says where checkpoints are and which device to use.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._backend: tuple[object, Backend] | None = None
        self._scorer: tuple[object, Scorer] | None = None

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
            from plumbline.lvlm.endpoint import EndpointBackend

            return EndpointBackend(entry.endpoint, sees=model not in self._places.audit.twins)
        from plumbline.lvlm.loading import load_backend

        return load_backend(self._places.lvlm_files(model), placement_of(self._places))

    def scorer(self, name: str) -> Scorer:
        """Return a scorer of the audit file."""
        settings = self._places.audit.scorers[name]
        key = (digest_json(settings.model_dump(mode="json")), placement_of(self._places))
        if self._scorer is None or self._scorer[0] != key:
            from plumbline.scorers.loading import load_scorer

            loaded = load_scorer(
                settings, project=PROJECT, fetched=self._places.fetched, placement=placement_of(self._places)
            )
            self._scorer = (key, loaded)
        return self._scorer[1]


def judge_of(places: Places) -> Judge | None:
    """Return the judge of stereotypes that the audit file names; None where it names none."""
    settings = places.audit.language.judge
    if settings is None:
        return None
    from plumbline.lvlm.judge import StereotypeJudge

    return StereotypeJudge(settings, places.judgements)


def backend_identity(places: Places, model: str) -> str:
    """Return the identity that a generative model's answers are kept under; no weights are loaded."""
    entry = places.lvlm_entry(model)
    if entry.endpoint is not None:
        from plumbline.lvlm.endpoint import EndpointBackend

        return EndpointBackend(entry.endpoint, sees=model not in places.audit.twins).identity
    from plumbline.lvlm.identity import identity_from_files

    return identity_from_files(places.lvlm_files(model), placement_of(places))


def placement_of(places: Places) -> Placement:
    """Return where and how the audit file runs generative models and scorers."""
    return Placement.choose(device=places.audit.device, dtype=places.audit.engine.dtype)
