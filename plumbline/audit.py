"""What an audit file says as a whole: its parts, whether they fit together, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

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
from plumbline.audit_part import Part
from plumbline.audit_values import MitigationId, Slug
from plumbline.digests import digest_json
from plumbline.generation_entries import GenerateEntry, Generation, Language, LvlmEntry
from plumbline.mitigation.entries import DEFAULT_MITIGATIONS, AnyMitigation
from plumbline.scorers.kinds import AnyScorer
from plumbline.scorers.settings import OfflineSettings
from plumbline.suggestion import suggestion
from plumbline.tables.suites import shows_mitigation

_BASE, _COMPOSITE = "trident", "trident_composite"
_OF_CLASSES = (_BASE, _COMPOSITE)
_OF_SCENES = ("pata_captions",)


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
        return (
            {**content, "labeller": next(iter(encoders))}
            if isinstance(encoders, dict) and encoders
            else content
        )

    @model_validator(mode="after")
    def _parts_fit(self) -> Audit:
        mistakes = [*self._undefined_names(), *self._alike_models()]
        # Cells are made of defined names only.
        mistakes += [] if mistakes else [*self._unfit_datasets(), *self._composites_alone()]
        if mistakes:
            raise ValidationError.from_exception_data("Audit", mistakes)
        return self

    def _undefined_names(self) -> Iterator[InitErrorDetails]:
        defined = {
            "encoders": tuple(self.encoders),
            "datasets": tuple(self.datasets),
            "mitigations": tuple(self.mitigations),
        }
        wanted: list[tuple[tuple[str | int, ...], str, tuple[str, ...]]]
        wanted = [] if self.labeller is None else [(("labeller",), self.labeller, defined["encoders"])]
        for i, entry in enumerate(self.audit):
            for key, names in defined.items():
                chosen = getattr(entry, key)
                if not chosen and key != "mitigations":
                    yield _mistake(("audit", i, key), [], f"`all`, or at least one of {', '.join(names)}")
                wanted += [
                    (("audit", i, key, j), name, names)
                    for j, name in enumerate(chosen if chosen != "all" else ())
                ]
        if self.watch is not None:
            here = tuple(name for name, entry in self.lvlms.items() if entry.address is not None)
            wanted.append((("watch", "like"), self.watch.like, (*self.encoders, *here)))
        wanted += self._names_of_generation()
        for location, name, names in wanted:
            if name not in names:
                yield _mistake(location, name, f"one of {', '.join(names)}{suggestion(name, names)}")

    def _alike_models(self) -> Iterator[InitErrorDetails]:
        """Say models that could be taken for another: of an encoder's id, or of one served name at other addresses."""
        first: dict[str, tuple[str, tuple[str, ...]]] = {}
        for name, entry in self.lvlms.items():
            if name in self.encoders:
                yield _mistake(("lvlms", name), name, "an id that no encoder has: both stand in one column")
            if entry.endpoint is None:
                continue
            known, urls = first.setdefault(entry.endpoint.model, (name, entry.endpoint.urls))
            if urls != entry.endpoint.urls:
                yield _mistake(
                    ("lvlms", name, "endpoint", "model"),
                    entry.endpoint.model,
                    f"a name that no other model is served under, as `{known}` is; or all addresses in one entry",
                )

    def _names_of_generation(self) -> list[tuple[tuple[str | int, ...], str, tuple[str, ...]]]:
        """Return where the parts on generation name something, what, and which names there are."""
        models, datasets = tuple(self.lvlms), tuple(self.datasets)
        twins = [(("lvlms", name, "twin"), e.twin, models) for name, e in self.lvlms.items() if e.twin]
        asked = [
            (("generate", i, key, j), name, names)
            for i, entry in enumerate(self.generate)
            for key, names in (("lvlms", models), ("datasets", datasets))
            for j, name in enumerate(getattr(entry, key) if getattr(entry, key) != "all" else ())
        ]
        return [*twins, *asked]

    def _unfit_datasets(self) -> Iterator[InitErrorDetails]:
        needs = {
            **dict.fromkeys(_OF_CLASSES, ("the Trident suites need a label set", list(self.class_sets))),
            **dict.fromkeys(_OF_SCENES, ("captions of scenes need scenes", sorted(self._with_scenes))),
        }
        for i, entry in enumerate(self.audit):
            named = entry.datasets if entry.datasets != "all" and "suites" in entry.model_fields_set else ()
            for suite in (suite for suite in entry.suites if suite in needs):
                why, having = needs[suite]
                if lacking := [name for name in named if not self._fits(suite, name)]:
                    yield _mistake(
                        ("audit", i, "suites", entry.suites.index(suite)),
                        suite,
                        f"suites of prompts alone for {', '.join(lacking)}: {why}, which {', '.join(having)} have",
                    )

    def _composites_alone(self) -> Iterator[InitErrorDetails]:
        lacking = {
            cell for cell, suites in self.cells.items() if _COMPOSITE in suites and _BASE not in suites
        }
        for i, entry in enumerate(self.audit):
            if _COMPOSITE in entry.suites and lacking.intersection(self._rectangle(entry)):
                yield _mistake(
                    ("audit", i, "suites", entry.suites.index(_COMPOSITE)),
                    _COMPOSITE,
                    f"`{_BASE}` beside it for the same datasets and encoders: alone it has no results",
                )

    def _rectangle(self, entry: AuditEntry) -> list[tuple[str, str]]:
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
            for cell in self._rectangle(entry)
            for suite in entry.suites
        )

    def uses_automatic_labels(self, dataset: str) -> bool:
        """Return whether something asked of a dataset, or demanded of it, depends on automatic gender labels."""
        asked = {suite for (of, _), suites in self.cells.items() if of == dataset for suite in suites}
        demanded = self.datasets[dataset].balance if dataset in self.datasets else {}
        return bool(asked.intersection(_OF_CLASSES)) or any(key.endswith("_gender") for key in demanded)

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
            for cell in self._rectangle(entry):
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
    def audits_encoders(self) -> bool:
        """Return whether encoders are what is told of: they are asked something, or no generative model is either."""
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

    def _fits(self, suite: str, dataset: str) -> bool:
        if suite in _OF_CLASSES:
            return dataset in self.class_sets
        return suite not in _OF_SCENES or dataset in self._with_scenes

    @cached_property
    def _with_scenes(self) -> set[str]:
        declared = {name: entry.open_reader().declaration for name, entry in self.datasets.items()}
        return {name for name, found in declared.items() if "scene" in found.filled}

    @cached_property
    def cells(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return (dataset, encoder) -> suites, in file order; suites of overlapping entries are joined.

        The Trident suites are asked of datasets that have a label set, captions of scenes of those that have scenes;
        a cell left without suites is none.
        """
        joined: dict[tuple[str, str], dict[str, None]] = {}
        for entry in self.audit:
            for cell in self._rectangle(entry):
                fitting = [suite for suite in entry.suites if self._fits(suite, cell[0])]
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


def _mistake(location: tuple[str | int, ...], found: object, expected: str) -> InitErrorDetails:
    # An expectation may hold braces, which a template would replace: it goes in as a value.
    kind = PydanticCustomError("unfit", "{expected}", {"expected": expected})
    return InitErrorDetails(type=kind, loc=location, input=found)
