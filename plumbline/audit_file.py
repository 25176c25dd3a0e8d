"""The audit file: what is audited on what, validated, with mistakes reported by file, line, key, found and expected."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.audit_mistakes import describe, repeated_keys
from plumbline.audit_part import Part
from plumbline.audit_values import (
    AUDITED_SUITES,
    JUDGING_SUITES,
    BalancedLabel,
    CheckpointAddress,
    FamilyName,
    FilterName,
    MitigationId,
    ReaderName,
    Root,
    Shares,
    Slug,
    SourceName,
    SuiteName,
    SuiteNames,
    Wording,
    suggestion,
)
from plumbline.datasets.column_map import ColumnMap
from plumbline.datasets.records import Reader
from plumbline.datasets.registry import MAPPED, reader_for
from plumbline.digests import digest_json
from plumbline.errors import ConfigError
from plumbline.generation_entries import (
    DecodingSettings,
    GenerateEntry,
    Generation,
    Language,
    Limit,
    LvlmEntry,
)
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.mitigation.settings import DEFAULT_MITIGATIONS, SETTINGS, MitigationSettings
from plumbline.scorers.settings import OfflineSettings, ScorerSettings, scorer_settings

_BASE, _COMPOSITE = "trident", "trident_composite"
_OF_CLASSES = (_BASE, _COMPOSITE)
_OF_SCENES = ("pata_captions",)
_BASE_KEY = "based_on"


class DatasetEntry(Part):
    """A dataset: its reader, its folder, and the shares its labels must have before anything is computed on it."""

    reader: ReaderName
    root: Root = Field(
        description="a folder, `hf-hub:datasets/ORG/NAME@COMMIT`, or `planted:NAME` for one of the planted world"
    )
    balance: dict[BalancedLabel, Shares] = Field(
        default_factory=dict,
        description="record column, or `COLUMN_gender` with the automatic label -> allowed share of each label",
    )
    filters: dict[SuiteName, FilterName] = Field(
        default_factory=dict, description="suite -> named row filter"
    )
    padding: float | None = Field(
        default=None, description="FairFace exists with 0.25 and 1.25: part of its identity"
    )
    quarantine_rate: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="in place of `thresholds.quarantine_rate`, as for a list with dead links",
    )
    map: ColumnMap | None = Field(
        default=None, description="for the reader `folder`: which column of its table is what"
    )

    @model_validator(mode="after")
    def _map_fits(self) -> DatasetEntry:
        if (self.reader == MAPPED) != (self.map is not None):
            raise ValueError(f"`map` with the reader `{MAPPED}`, and only with it")
        return self

    def open_reader(self) -> Reader:
        """Return the reader of this dataset."""
        return reader_for(self.reader, self.map)


class EncoderEntry(Part):
    """A checkpoint: `local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT` or an open_clip `ARCHITECTURE/TAG`; see `families`."""

    address: CheckpointAddress
    family: FamilyName | None = Field(
        default=None, description="which library reads it; found from its files when absent"
    )
    factors: dict[str, str] = Field(
        default_factory=dict, description="design factors, such as size or data source"
    )
    wording: Wording | None = Field(
        default=None, description="of the Trident prompts; that of the encoder's family when absent"
    )
    planted_source: SourceName | None = Field(
        default=None, description="for checkpoints of the planted world: their source"
    )


class AuditEntry(Part):
    """One rectangle of the grid: these encoders on these datasets, with these suites and mitigations."""

    encoders: Literal["all"] | tuple[Slug, ...] = "all"
    datasets: Literal["all"] | tuple[Slug, ...] = "all"
    suites: SuiteNames = AUDITED_SUITES
    mitigations: Literal["all"] | tuple[Slug, ...] = Field(
        default="all", description="ids of `mitigations`; none are tried where the list is empty"
    )


class Storage(Part):
    """Where results live and how arrays are cut."""

    root: str | None = Field(
        default=None, description="folder or fsspec address; `.plumbline/lake` when absent"
    )
    shard_rows: int = Field(default=4096, ge=1)


class Engine(Part):
    """How models run. What could move a number is part of the cache key."""

    batch_rows: int | None = Field(
        default=None,
        ge=1,
        description="images of a forward pass; when absent 64 on a CPU, found once on a GPU",
    )
    workers: int | None = Field(default=None, ge=1, description="decoding threads; one per core when absent")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="auto: bfloat16 on a GPU, float32 on a CPU"
    )
    compile: bool = Field(default=False, description="run the models through torch.compile")
    decoder: Literal["pillow", "fast"] = Field(
        default="pillow",
        description="fast: another JPEG decoder where an encoder only resizes and crops, if embeddings agree",
    )


class Statistics(Part):
    """How uncertainty is computed."""

    seed: int = Field(default=20260801, ge=0)
    resamples: int = Field(default=10_000, ge=100)
    permutations: int = Field(default=10_000, ge=100)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    min_group: int = Field(default=30, ge=1)
    label_margin: float = Field(default=0.2, ge=0, lt=1)


class Thresholds(Part):
    """Limits of the quality checks."""

    label_error: float = Field(
        default=0.15, ge=0, le=1, description="largest automatic-label error rate of a group"
    )
    quarantine_rate: float = Field(default=0.05, ge=0, le=1)


class Audit(Part):
    """The whole audit file."""

    title: str = "A Plumbline audit"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    labeller: Slug
    storage: Storage = Storage()
    engine: Engine = Engine()
    statistics: Statistics = Statistics()
    mitigations: dict[MitigationId, MitigationSettings] = DEFAULT_MITIGATIONS
    thresholds: Thresholds = Thresholds()
    datasets: dict[Slug, DatasetEntry]
    encoders: dict[Slug, EncoderEntry]
    audit: tuple[AuditEntry, ...] = ()
    lvlms: dict[Slug, LvlmEntry] = Field(default_factory=dict)
    scorers: dict[Slug, ScorerSettings] = Field(
        default={"offline": OfflineSettings()},
        description="what scores generated texts; the first is the one that headlines use",
    )
    generate: tuple[GenerateEntry, ...] = ()
    generation: Generation = Generation()
    language: Language = Language()

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
        wanted = [(("labeller",), self.labeller, defined["encoders"])]
        for i, entry in enumerate(self.audit):
            for key, names in defined.items():
                chosen = getattr(entry, key)
                if not chosen and key != "mitigations":
                    yield _mistake(("audit", i, key), [], f"`all`, or at least one of {', '.join(names)}")
                wanted += [
                    (("audit", i, key, j), name, names)
                    for j, name in enumerate(chosen if chosen != "all" else ())
                ]
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

    @cached_property
    def mitigated(self) -> dict[tuple[str, str], dict[str, bool]]:
        """Return (dataset, encoder) -> id of each mitigation that is tried on it -> whether an entry names it.

        An entry without `mitigations` means every one that the encoder and the dataset allow, if it asks for a suite
        that shows what they change; a named one must be possible.
        """
        joined: dict[tuple[str, str], dict[str, bool]] = {}
        for entry in self.audit:
            named = entry.mitigations != "all"
            if not named and not set(JUDGING_SUITES).intersection(entry.suites):
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

    def _fits(self, suite: str, dataset: str) -> bool:
        if suite in _OF_CLASSES:
            return dataset in self.class_sets
        return suite not in _OF_SCENES or dataset in self._with_scenes

    @cached_property
    def _with_scenes(self) -> set[str]:
        declared = {name: entry.open_reader().declaration for name, entry in self.datasets.items()}
        return {name for name, found in declared.items() if "scene" in {rule.column for rule in found.rules}}

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
        left_out: Any = {"storage": {"root"}, "engine": {"workers"}, "title": True, "generation": {"limit"}}
        return digest_json(self.model_dump(mode="json", exclude=left_out))


def _mistake(location: tuple[str | int, ...], found: object, expected: str) -> InitErrorDetails:
    # An expectation may hold braces, which a template would replace: it goes in as a value.
    kind = PydanticCustomError("unfit", "{expected}", {"expected": expected})
    return InitErrorDetails(type=kind, loc=location, input=found)


_MODELS: dict[str, type[BaseModel]] = {
    "": Audit, "datasets": DatasetEntry, "datasets.map": ColumnMap, "encoders": EncoderEntry, "audit": AuditEntry,
    "storage": Storage, "engine": Engine, "statistics": Statistics, "thresholds": Thresholds,
    "generate": GenerateEntry, "generation": Generation, "generation.decoding": DecodingSettings,
    "generation.limit": Limit, "language": Language, "language.judge": EndpointSettings,
    "lvlms": LvlmEntry, "lvlms.endpoint": EndpointSettings,
    **{f"mitigations.{name}": model for name, model in SETTINGS.items()},
    **{f"scorers.{name}": model for name, model in scorer_settings().items()},
}  # fmt: skip


def read_audit(path: Path) -> Audit:
    """Read and validate an audit file.

    A file with `based_on: OTHER.yaml` says only what differs from the other: entries of mappings, such as one more
    dataset, are added or replaced by their key, everything else is replaced.

    Raises
    ------
    ConfigError
        If the file is absent, is not YAML, or any key in it is unknown, missing, repeated or of a wrong value. All
        mistakes are listed at once, each with line, key, found and expected.
    """
    text = _text(path)
    name = _loaded(text, path)[0].get(_BASE_KEY)
    base = path.parent / str(name) if name is not None else None
    return _parse(text, path, base, None if base is None else _text(base))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError("the audit file cannot be read", where=path, found=error.strerror) from error


# Every step of an audit reads the file anew, so that an edit is seen; equal text need not be parsed again.
@lru_cache(maxsize=4)
def _loaded(text: str, path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError("the audit file is not valid YAML", where=path, found=error) from error
    if not isinstance(content, dict):
        raise ConfigError("the audit file must be a mapping", where=path, found=type(content).__name__)
    return content, node


@lru_cache(maxsize=4)
def _parse(text: str, path: Path, base: Path | None, base_text: str | None) -> Audit:
    content, node = _loaded(text, path)
    if base is not None and base_text is not None:
        if _BASE_KEY not in _loaded(base_text, base)[0]:
            # Its own mistakes are said with its own lines.
            _parse(base_text, base, None, None)
        content = _laid_over(content, _loaded(base_text, base)[0], path)
    repeated = list(repeated_keys(node))
    try:
        audit = Audit.model_validate(content)
    except ValidationError as error:
        said = (describe(mistake, node, _MODELS) for mistake in error.errors())
        raise _refusal([*repeated, *said], path) from error
    if repeated:
        raise _refusal(repeated, path)
    return audit


def _laid_over(own: dict[str, Any], base: dict[str, Any], path: Path) -> dict[str, Any]:
    if _BASE_KEY in base:
        raise ConfigError(
            "an audit file can be based on one other, not on a chain of them",
            where=path,
            found=f"{own[_BASE_KEY]}, based on {base[_BASE_KEY]}",
            expected="a file that is complete in itself",
        )
    joined = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        joined[key] = {**base[key], **value} if both else value
    del joined[_BASE_KEY]
    return joined


def _refusal(mistakes: list[str], path: Path) -> ConfigError:
    shown = "\n".join(mistakes)
    return ConfigError(f"the audit file has {len(mistakes)} mistake(s)\n{shown}", where=path)
