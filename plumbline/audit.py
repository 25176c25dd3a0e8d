"""What an audit file says as a whole: its parts, and what follows from them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from plumbline.audit_entries import (
    AuditEntry,
    DatasetEntry,
    EncoderEntry,
    Engine,
    Statistics,
    Storage,
    Thresholds,
    Watch,
)
from plumbline.audit_fit import SCENE_SUITES, TRIDENT_SUITES, unfit_parts
from plumbline.audit_part import Part
from plumbline.audit_values import SLUG, MitigationId, Slug
from plumbline.digests import digest_json
from plumbline.generation_entries import GenerateEntry, Generation, Language, LvlmEntry
from plumbline.mitigation.entries import DEFAULT_MITIGATIONS, AnyMitigation
from plumbline.scorers.kinds import AnyScorer
from plumbline.scorers.settings import OfflineSettings
from plumbline.tables.suites import shows_mitigation


class Audit(Part):
    """The whole audit file."""

    title: str = Field(default="A Plumbline audit", description="heads the report")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: a GPU where there is one"
    )
    labeller: Slug | None = Field(
        default=None,
        description="the encoder that guesses man or woman for the mixed Trident tests; the first of `encoders` "
        "when absent",
    )
    storage: Storage = Field(default=Storage(), description="where results live")
    engine: Engine = Field(default=Engine(), description="how models run")
    statistics: Statistics = Field(default=Statistics(), description="intervals, tests, seed")
    mitigations: dict[MitigationId, AnyMitigation] = Field(
        default=DEFAULT_MITIGATIONS, description="what is tried, by an id of yours; `{}` tries nothing"
    )
    thresholds: Thresholds = Field(default=Thresholds(), description="limits of the checks")
    datasets: dict[Slug, DatasetEntry] = Field(description="by an id of yours")
    encoders: dict[Slug, EncoderEntry] = Field(
        default_factory=dict, description="by an id of yours: models that compare images with texts"
    )
    audit: tuple[AuditEntry, ...] = Field(
        default=(), description="which encoders are asked what on which datasets"
    )
    lvlms: dict[Slug, LvlmEntry] = Field(
        default_factory=dict, description="by an id of yours: models that answer in words"
    )
    scorers: dict[Slug, AnyScorer] = Field(
        default={"offline": OfflineSettings()},
        description="what scores generated texts; the first is the one that headlines use",
    )
    generate: tuple[GenerateEntry, ...] = Field(
        default=(), description="which of them are asked what about which images"
    )
    generation: Generation = Field(
        default=Generation(), description="how texts are drawn, and how many at most"
    )
    language: Language = Field(default=Language(), description="how words are counted and who judges them")
    watch: Watch | None = Field(default=None, description="a folder whose checkpoints are audited too")

    @model_validator(mode="before")
    @classmethod
    def _first_encoder_labels(cls, content: Any) -> Any:
        if not isinstance(content, dict) or content.get("labeller") is not None or not content.get("audit"):
            return content
        encoders = content.get("encoders")
        first = next(iter(encoders), None) if isinstance(encoders, dict) else None
        # An id that is not one is a mistake of its own.
        return {**content, "labeller": first} if first and SLUG.fullmatch(str(first)) else content

    @model_validator(mode="after")
    def _parts_fit(self) -> Audit:
        if mistakes := unfit_parts(self):
            raise ValidationError.from_exception_data("Audit", mistakes)
        return self

    def rectangle(self, entry: AuditEntry) -> list[tuple[str, str]]:
        """Return the (dataset, encoder) that an entry asks something of."""
        datasets = self.datasets if entry.datasets == "all" else entry.datasets
        encoders = self.encoders if entry.encoders == "all" else entry.encoders
        return [(dataset, encoder) for dataset in datasets for encoder in encoders]

    @cached_property
    def class_sets(self) -> dict[str, str]:
        """Return dataset -> Trident label set, for the datasets that have one."""
        declared = {name: entry.open_reader().declaration.class_set for name, entry in self.datasets.items()}
        return {name: class_set for name, class_set in declared.items() if class_set is not None}

    @cached_property
    def named(self) -> frozenset[tuple[str, str, str]]:
        """Return the (dataset, encoder, suite) that some entry asks for by the suite's name.

        An entry without `suites` means every suite that the encoder can answer; a named one must be answered.
        """
        return frozenset(
            (*cell, suite)
            for entry in self.audit
            if "suites" in entry.model_fields_set
            for cell in self.rectangle(entry)
            for suite in entry.suites
        )

    def uses_automatic_labels(self, dataset: str) -> bool:
        """Return whether something asked of a dataset, or demanded of it, depends on automatic gender labels."""
        asked = {suite for (of, _), suites in self.cells.items() if of == dataset for suite in suites}
        demanded = self.datasets[dataset].balance if dataset in self.datasets else {}
        return bool(asked.intersection(TRIDENT_SUITES)) or any(key.endswith("_gender") for key in demanded)

    @cached_property
    def mitigated(self) -> dict[tuple[str, str], dict[str, bool]]:
        """Return (dataset, encoder) -> id of each mitigation that is tried on it -> whether an entry names it.

        An entry without `mitigations` means every one that the encoder and the dataset allow, if it asks for a suite
        that shows what they change; a named one must be possible.
        """
        joined: dict[tuple[str, str], dict[str, bool]] = {}
        for entry in self.audit:
            named = entry.mitigations != "all"
            if not named and not any(map(shows_mitigation, entry.suites)):
                continue
            for cell in self.rectangle(entry):
                tried = joined.setdefault(cell, {})
                for name in entry.mitigations if named else self.mitigations:
                    tried[name] = tried.get(name, False) or named
        return joined

    @cached_property
    def twins(self) -> dict[str, tuple[str, ...]]:
        """Return language model -> the models that were built on it."""
        built: dict[str, tuple[str, ...]] = {}
        for name, entry in self.lvlms.items():
            if entry.twin is not None:
                built[entry.twin] = (*built.get(entry.twin, ()), name)
        return built

    @cached_property
    def designs(self) -> dict[tuple[str, str], tuple[GenerateEntry, ...]]:
        """Return (model, dataset) -> what it is asked about it, in file order, language models after the others.

        A language model that others were built on is asked what they are asked of `TWIN_PROMPT`, without instructions.
        """
        joined: dict[tuple[str, str], tuple[GenerateEntry, ...]] = {}
        seeing = [name for name in self.lvlms if name not in self.twins]
        for entry in self.generate:
            for model in seeing if entry.lvlms == "all" else entry.lvlms:
                for dataset in entry.datasets:
                    joined[model, dataset] = (*joined.get((model, dataset), ()), entry)
        for twin, built in self.twins.items():
            for model, dataset in [key for key in joined if key[0] in built]:
                asked = tuple(entry for entry in joined[model, dataset] if entry.asks_twins)
                joined[twin, dataset] = (*joined.get((twin, dataset), ()), *asked)
        kept = {
            key: tuple(e for e in dict.fromkeys(entries) if key[0] not in self.twins or e.asks_twins)
            for key, entries in joined.items()
        }
        return {key: entries for key, entries in kept.items() if entries}

    @cached_property
    def asked_models(self) -> tuple[str, ...]:
        """Return the generative models that are asked anything, in the order of `designs`."""
        return tuple(dict.fromkeys(model for model, _ in self.designs))

    @property
    def tells_of_encoders(self) -> bool:
        """Return whether commands tell how encoders stand: also where nothing at all is asked, so that it is seen."""
        return bool(self.cells) or not self.designs

    @cached_property
    def asked_datasets(self) -> tuple[str, ...]:
        """Return the datasets that a generative model is asked about."""
        return tuple(dict.fromkeys(dataset for _, dataset in self.designs))

    @cached_property
    def used_datasets(self) -> tuple[str, ...]:
        """Return the datasets that an encoder or a generative model is audited on."""
        of_encoders = (dataset for dataset, _ in self.cells)
        return tuple(dict.fromkeys((*of_encoders, *self.asked_datasets)))

    @cached_property
    def used_encoders(self) -> tuple[str, ...]:
        """Return the encoders that are audited on a dataset; the one that labels genders need not be among them."""
        return tuple(dict.fromkeys(encoder for _, encoder in self.cells))

    def can_answer(self, dataset: str, suite: str) -> bool:
        """Return whether a dataset has what a suite needs: a label set, or scenes."""
        if suite in TRIDENT_SUITES:
            return dataset in self.class_sets
        return suite not in SCENE_SUITES or dataset in self.with_scenes

    @cached_property
    def with_scenes(self) -> frozenset[str]:
        """Return the datasets whose images are listed by scene."""
        declared = {name: entry.open_reader().declaration for name, entry in self.datasets.items()}
        return frozenset(name for name, found in declared.items() if "scene" in found.filled)

    @cached_property
    def cells(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return (dataset, encoder) -> suites, in file order; suites of overlapping entries are joined.

        The Trident suites are asked of datasets that have a label set, captions of scenes of those that have scenes;
        a cell left without suites is none.
        """
        joined: dict[tuple[str, str], dict[str, None]] = {}
        for entry in self.audit:
            for cell in self.rectangle(entry):
                fitting = [suite for suite in entry.suites if self.can_answer(cell[0], suite)]
                joined.setdefault(cell, {}).update(dict.fromkeys(fitting))
        return {cell: tuple(suites) for cell, suites in joined.items() if suites}

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the resolved file: defaults filled in, what cannot move a number left out."""
        left_out: Any = {
            "storage": {"root"},
            "engine": {"workers"},
            "title": True,
            "generation": {"limit"},
            "thresholds": {"regression"},
        }
        return digest_json(self.model_dump(mode="json", exclude=left_out))
