"""The audit file as a whole: its parts, and the cells and designs that follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from plumbline.catalog.suites import (
    TRIDENT_SUITES,
    UTILITY,
    ZERO_SHOT,
    Suite,
    data_of,
    load_suite,
    shows_mitigation,
    suite_of,
)
from plumbline.checkpoints.addresses import STORED
from plumbline.config.entries import (
    AuditEntry,
    DatasetEntry,
    EncoderEntry,
    Engine,
    GenerateEntry,
    Generation,
    Language,
    LvlmEntry,
    OwnMetricEntry,
    Retrieval,
    Statistics,
    Storage,
    Thresholds,
    Watch,
)
from plumbline.config.parts import FROM_FILES, Part, unfit
from plumbline.config.values import AUDITED_SUITES, SLUG, Margin, MetricName, MitigationId, Slug
from plumbline.datasets.records import Declaration
from plumbline.datasets.registry import IMAGE_TEXT_PAIRS
from plumbline.digests import digest_json
from plumbline.errors import ConfigError, suggestion
from plumbline.mitigations.registry import DEFAULT_MITIGATIONS, AnyMitigation
from plumbline.scorers.kinds import AnyScorer
from plumbline.scorers.offline import OfflineSettings
from plumbline.world.folders import PLANTED


class Audit(Part):
    """The whole audit file."""

    title: str = "A Plumbline audit"
    """heads the report"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where there is one"""
    devices: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    """how many work side by side, a process each; auto: every GPU; without one as many as cores, four at most"""
    pictures: bool = False
    """show small pictures of images that got another answer in report and export; drawn faces are shown always"""
    strict: bool = False
    """refuse the audit where one encoder cannot be audited; else it is left aside, and the others are audited"""
    labeller: Slug | None = None
    """the encoder that guesses man or woman for the mixed Trident tests; the first of `encoders` that is a model when
    absent"""
    storage: Storage = Storage()
    """where results live"""
    engine: Engine = Engine()
    """how models run"""
    statistics: Statistics = Statistics()
    """intervals, tests, seed"""
    mitigations: dict[MitigationId, AnyMitigation] = DEFAULT_MITIGATIONS
    """what is tried, by an id of yours; `{}` tries nothing"""
    retrieval: Retrieval = Retrieval()
    """image-text pairs by which what is tried is judged too"""
    thresholds: Thresholds = Thresholds()
    """limits of the checks"""
    metrics: dict[Slug, OwnMetricEntry] = Field(default_factory=dict)
    """metrics of your own, by a name of yours that stands in the column `definition`"""
    equivalence: dict[MetricName, Margin] = Field(default_factory=dict)
    """metric -> the largest difference that does not matter, by your judgement; without it nothing is called equal"""
    datasets: dict[Slug, DatasetEntry]
    """by an id of yours"""
    encoders: dict[Slug, EncoderEntry] = Field(default_factory=dict)
    """by an id of yours: models that compare images with texts"""
    audit: tuple[AuditEntry, ...] = ()
    """which encoders are asked what on which datasets"""
    lvlms: dict[Slug, LvlmEntry] = Field(default_factory=dict)
    """by an id of yours: models that answer in words"""
    scorers: dict[Slug, AnyScorer] = Field(default={"offline": OfflineSettings()})
    """what scores generated texts; the first is the one that headlines use"""
    generate: tuple[GenerateEntry, ...] = ()
    """which of them are asked what about which images"""
    generation: Generation = Generation()
    """how texts are drawn, and how many at most"""
    language: Language = Language()
    """how words are counted and who judges them"""
    watch: Watch | None = None
    """a folder whose checkpoints are audited too"""
    own_suites: Annotated[dict[Slug, dict[str, Any]], FROM_FILES] = Field(default_factory=dict)
    """what the suites say that entries name by a path; kept, so that a past audit is told with its own words"""

    @model_validator(mode="before")
    @classmethod
    def _first_encoder_labels(cls, content: Any) -> Any:
        if not isinstance(content, dict) or content.get("labeller") is not None or not content.get("audit"):
            return content
        encoders = content.get("encoders")
        # Stored predictions cannot label anything.
        able = (name for name, entry in encoders.items() if not _is_stored(entry)) if isinstance(encoders, dict) else ()
        first = next(iter(able), None)
        # An invalid id is reported as its own error.
        return {**content, "labeller": first} if first and SLUG.fullmatch(str(first)) else content

    @model_validator(mode="after")
    def _parts_fit(self) -> Audit:
        if mistakes := unfit_parts(self):
            raise ValidationError.from_exception_data("Audit", mistakes)
        return self

    def rectangle(self, entry: AuditEntry) -> list[tuple[str, str]]:
        """Return the (dataset, encoder) that an entry asks something of."""
        labelled = [name for name, dataset in self.datasets.items() if dataset.reader not in IMAGE_TEXT_PAIRS]
        datasets = labelled if entry.datasets == "all" else entry.datasets
        encoders = self.encoders if entry.encoders == "all" else entry.encoders
        return [(dataset, encoder) for dataset in datasets for encoder in encoders]

    @cached_property
    def suites_of_files(self) -> dict[str, Suite]:
        """Return the suites that entries name by a path, by the name of the file."""
        return {name: suite_of(content) for name, content in self.own_suites.items()}

    def suite(self, name: str) -> Suite:
        """Return a suite that entries name, of a file or by its name."""
        of_file = self.suites_of_files.get(name)
        return load_suite(name) if of_file is None else of_file

    def suite_family(self, name: str) -> str:
        """Return the family of a suite."""
        if name == ZERO_SHOT:
            return UTILITY
        return str(self.own_suites[name]["family"] if name in self.own_suites else data_of(name)["family"])

    @cached_property
    def declarations(self) -> dict[str, Declaration]:
        """Return dataset -> what its reader declares of it.

        Raises
        ------
        ConfigError
            If a reader of one's own declares nothing, with its key.
        """
        declared = {}
        for name, entry in self.datasets.items():
            try:
                declared[name] = entry.open_reader().declaration
            except ConfigError as error:
                raise error.restated(ConfigError, f"`datasets.{name}.reader`: ", where=error.where) from error
        return declared

    @cached_property
    def class_sets(self) -> dict[str, str]:
        """Return dataset -> Trident label set, for the datasets that have one."""
        return {name: each.class_set for name, each in self.declarations.items() if each.class_set is not None}

    @cached_property
    def with_scenes(self) -> frozenset[str]:
        """Return the datasets whose images are listed by scene."""
        return frozenset(name for name in self.declarations if "scene" in self.grouped_by(name))

    def grouped_by(self, dataset: str) -> frozenset[str]:
        """Return the label columns that a dataset fills, by what its reader declares or by its column map."""
        column_map = self.datasets[dataset].map
        mapped = () if column_map is None else column_map.attributes
        return self.declarations[dataset].groups_named.union(mapped)

    @cached_property
    def with_classes(self) -> frozenset[str]:
        """Return the datasets whose images have labels of classes."""
        return frozenset(name for name, each in self.declarations.items() if "label" in each.filled)

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
        """Return whether a suite or a balance check of a dataset depends on automatic gender labels."""
        suites_of_dataset = {suite for (of, _), suites in self.cells.items() if of == dataset for suite in suites}
        demanded = self.datasets[dataset].balance if dataset in self.datasets else {}
        return bool(suites_of_dataset.intersection(TRIDENT_SUITES)) or any(key.endswith("_gender") for key in demanded)

    @cached_property
    def mitigated(self) -> dict[tuple[str, str], dict[str, bool]]:
        """Return (dataset, encoder) -> id of each mitigation that is tried on it -> whether an entry names it.

        An entry without `mitigations` means every one that the encoder and the dataset allow, if it asks for a suite
        that shows what they change. A named one must be possible for the model and the suites; where the images allow
        no fit it is left out with the reason, as every other.
        """
        joined: dict[tuple[str, str], dict[str, bool]] = {}
        for entry in self.audit:
            named = entry.mitigations != "all"
            if not named and not any(shows_mitigation(name, self.suite_family(name)) for name in entry.suites):
                continue
            for cell in self.rectangle(entry):
                tried = joined.setdefault(cell, {})
                for name in entry.mitigations if named else self.mitigations:
                    tried[name] = tried.get(name, False) or named
        return joined

    @cached_property
    def fitted_on(self) -> frozenset[tuple[str, str]]:
        """Return the (dataset, encoder) whose images mitigations of other datasets are fitted on."""
        return frozenset(
            (other, encoder)
            for (dataset, encoder), tried in self.mitigated.items()
            for name in tried
            for other in self.mitigations[name].datasets
            if other != dataset and (other, encoder) in self.cells
        )

    @cached_property
    def pair_datasets(self) -> tuple[str, ...]:
        """Return the datasets of image-text pairs that mitigations of this audit are trained on or judged by."""
        tried = dict.fromkeys(name for names in self.mitigated.values() for name in names)
        trained_on = (dataset for name in tried for _, dataset in self.mitigations[name].pair_datasets)
        return tuple(dict.fromkeys((*trained_on, *(self.retrieval.datasets if tried else ()))))

    @cached_property
    def base_llms(self) -> dict[str, tuple[str, ...]]:
        """Return language model -> the models that were built on it."""
        built = {name: entry.base_llm for name, entry in self.lvlms.items() if entry.base_llm is not None}
        return {base_llm: tuple(name for name, of in built.items() if of == base_llm) for base_llm in built.values()}

    @cached_property
    def designs(self) -> dict[tuple[str, str], tuple[GenerateEntry, ...]]:
        """Return (model, dataset) -> its designs, in file order, language models last.

        A base language model is asked what the models built on it are asked, of `BASE_LLM_PROMPT` without instructions,
        about datasets that name occupations: its prompt says one, and it is compared by occupation and group.
        """
        entries_of: dict[tuple[str, str], list[GenerateEntry]] = defaultdict(list)
        seeing = [name for name in self.lvlms if name not in self.base_llms]
        for entry in self.generate:
            for model in seeing if entry.lvlms == "all" else entry.lvlms:
                for dataset in entry.datasets:
                    entries_of[model, dataset].append(entry)
        for base_llm, built in self.base_llms.items():
            for model, dataset in [key for key in entries_of if key[0] in built]:
                if "occupation" in self.declarations[dataset].filled:
                    entries_of[base_llm, dataset] += entries_of[model, dataset]
        kept = {
            key: tuple(
                entry for entry in dict.fromkeys(entries) if key[0] not in self.base_llms or entry.asks_base_llms
            )
            for key, entries in entries_of.items()
        }
        return {key: entries for key, entries in kept.items() if entries}

    def designs_of(self, model: str) -> dict[str, tuple[GenerateEntry, ...]]:
        """Return dataset -> what a generative model is asked about it, in the order of `designs`."""
        return {dataset: entries for (name, dataset), entries in self.designs.items() if name == model}

    @cached_property
    def asked_models(self) -> tuple[str, ...]:
        """Return the generative models that are asked anything, in the order of `designs`."""
        return tuple(dict.fromkeys(model for model, _ in self.designs))

    def shows_pictures(self, dataset: str) -> bool:
        """Return whether pictures of a dataset may leave the home, in a report or an export."""
        return self.pictures or self.datasets[dataset].root.startswith(PLANTED)

    @property
    def tells_of_encoders(self) -> bool:
        """Return whether commands report on encoders: if any is audited, or if nothing is audited at all."""
        return bool(self.cells) or not self.designs

    @cached_property
    def asked_datasets(self) -> tuple[str, ...]:
        """Return the datasets that a generative model is asked about."""
        return tuple(dict.fromkeys(dataset for _, dataset in self.designs))

    @cached_property
    def used_datasets(self) -> tuple[str, ...]:
        """Return the datasets that a model is audited on, and those of pairs that its mitigations use."""
        return tuple(dict.fromkeys((*self.audited_datasets, *self.pair_datasets)))

    @cached_property
    def audited_datasets(self) -> tuple[str, ...]:
        """Return the datasets that an encoder or a generative model is audited on."""
        of_encoders = (dataset for dataset, _ in self.cells)
        return tuple(dict.fromkeys((*of_encoders, *self.asked_datasets)))

    @cached_property
    def used_encoders(self) -> tuple[str, ...]:
        """Return the encoders that are audited on a dataset; the one that labels genders need not be among them."""
        return tuple(dict.fromkeys(encoder for _, encoder in self.cells))

    def can_answer(self, dataset: str, suite: str) -> bool:
        """Return whether a dataset has what a suite needs: people, a label set, scenes, or labels of classes."""
        if suite == ZERO_SHOT:
            return dataset in self.with_classes
        if not self.declarations[dataset].of_people:
            return False
        if suite in TRIDENT_SUITES:
            return dataset in self.class_sets
        if (suite_of_file := self.suites_of_files.get(suite)) is not None and suite_of_file.attribute is not None:
            return suite_of_file.attribute in self.grouped_by(dataset)
        return self.suite_family(suite) != "captions" or dataset in self.with_scenes

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
            "devices": True,
            "storage": {"root"},
            "engine": {"workers"},
            "title": True,
            "generation": {"limit"},
            "thresholds": {"regression"},
        }
        return digest_json(self.model_dump(mode="json", exclude=left_out))


def _is_stored(entry: Any) -> bool:
    return isinstance(entry, dict) and str(entry.get("address")).startswith(STORED)


# --- The audit file's watched folder: what is dropped into it is audited as a model that the file already
# names.

_OF_THE_TEMPLATE = ("family", "wording")
"""What a found checkpoint shares with the entry that it is audited like; design factors are facts of that one alone."""


def with_watched(audit: Audit, folders: Mapping[str, str]) -> Audit:
    """Return the audit file with the checkpoints that were found, asked for wherever `like` is.

    Parameters
    ----------
    found : mapping of str to str
        Id -> folder. Ids that the audit file has itself are left out.
    """
    known = {*audit.encoders, *audit.lvlms}
    added = {name: folder for name, folder in folders.items() if name not in known}
    if audit.watch is None or not added:
        return audit
    like = audit.watch.like
    kind, asking = ("encoders", "audit") if like in audit.encoders else ("lvlms", "generate")
    content: dict[str, Any] = audit.model_dump(mode="json", exclude_unset=True)
    template = content[kind][like]
    shared = {name: template[name] for name in _OF_THE_TEMPLATE if name in template}
    content[kind] |= {name: {"address": f"local-dir:{folder}", **shared} for name, folder in added.items()}
    for entry in content.get(asking, ()):
        if like in entry.get(kind, ()) and entry[kind] != "all":
            entry[kind] = [*entry[kind], *added]
    return type(audit).model_validate(content)


# --- How the parts of an audit file fit together: names that exist, suites that a dataset can answer,
# models apart.

_BASE, _COMPOSITE = TRIDENT_SUITES


def unfit_parts(audit: Audit) -> list[InitErrorDetails]:
    """Return the errors between parts that are valid by themselves."""
    mistakes = [*_empty_choices(audit), *_undefined_names(audit), *_models_alike(audit)]
    # Cells are made of defined names only.
    checks = (_unfit_datasets, _composites_alone, _unfit_fits, _pairs_without_captions)
    return mistakes or [mistake for check in checks for mistake in check(audit)]


def _empty_choices(audit: Audit) -> Iterator[InitErrorDetails]:
    if audit.audit and not audit.encoders:
        yield unfit(("encoders",), {}, "at least one encoder: `audit` asks encoders, `generate` asks `lvlms`")
    for i, entry in enumerate(audit.audit):
        for key, defined in (("encoders", audit.encoders), ("datasets", audit.datasets)):
            if not getattr(entry, key):
                yield unfit(("audit", i, key), [], f"`all`, or at least one of {', '.join(defined)}")


def _undefined_names(audit: Audit) -> Iterator[InitErrorDetails]:
    for location, name, defined in _names(audit):
        if name not in defined:
            yield unfit(location, name, f"one of {', '.join(defined)}{suggestion(name, defined)}")


def _names(audit: Audit) -> Iterator[tuple[tuple[str | int, ...], str, tuple[str, ...]]]:
    """Yield every name that stands somewhere in the file: its place, itself, and the names that exist there."""
    parts = ("encoders", "datasets", "mitigations", "lvlms")
    defined = {part: tuple(getattr(audit, part)) for part in parts}
    if audit.labeller is not None:
        yield ("labeller",), audit.labeller, defined["encoders"]
    for key, entries in (("audit", audit.audit), ("generate", audit.generate)):
        for i, entry in enumerate(entries):
            for part in parts:
                names = getattr(entry, part, "all")
                for j, name in enumerate(() if names == "all" else names):
                    yield (key, i, part, j), name, defined[part]
    suites = (*AUDITED_SUITES, *audit.own_suites)
    for i, entry in enumerate(audit.audit):
        yield from ((("audit", i, "suites", j), name, suites) for j, name in enumerate(entry.suites))
    for dataset_id, of_dataset in audit.datasets.items():
        yield from ((("datasets", dataset_id, "filters", name), name, suites) for name in of_dataset.filters)
    for metric_id, metric in audit.metrics.items():
        named = [(("suites", str(j)), name) for j, name in enumerate(metric.suites)]
        named += [(("question", "suite"), metric.question.suite)] if metric.question is not None else []
        yield from ((("metrics", metric_id, *place), name, suites) for place, name in named)
    for name, settings in audit.mitigations.items():
        for key, dataset in (*settings.fitted_on_datasets, *settings.pair_datasets):
            yield ("mitigations", name, key), dataset, defined["datasets"]
    for i, dataset in enumerate(audit.retrieval.datasets):
        yield ("retrieval", "datasets", i), dataset, defined["datasets"]
    for name, entry in audit.lvlms.items():
        if entry.base_llm:
            yield ("lvlms", name, "base_llm"), entry.base_llm, defined["lvlms"]
    if audit.watch is not None:
        local = tuple(name for name, entry in audit.lvlms.items() if entry.address is not None)
        yield ("watch", "like"), audit.watch.like, (*defined["encoders"], *local)


def _models_alike(audit: Audit) -> Iterator[InitErrorDetails]:
    """Report ambiguous models: with an encoder's id, or one served name at several addresses."""
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, entry in audit.lvlms.items():
        if name in audit.encoders:
            yield unfit(("lvlms", name), name, "an id that no encoder has: both stand in one column")
        if entry.endpoint is None:
            continue
        known, urls = first.setdefault(entry.endpoint.model, (name, entry.endpoint.urls))
        if urls != entry.endpoint.urls:
            yield unfit(
                ("lvlms", name, "endpoint", "model"),
                entry.endpoint.model,
                f"a name that no other model is served under, as `{known}` is; or all addresses in one entry",
            )


def _with_groups(audit: Audit, attribute: str) -> list[str]:
    return sorted(name for name, each in audit.declarations.items() if attribute in each.groups_named)


def _unfit_datasets(audit: Audit) -> Iterator[InitErrorDetails]:
    needs = {
        **dict.fromkeys(TRIDENT_SUITES, ("the Trident suites need a label set", list(audit.class_sets))),
        **{
            name: ("captions of scenes need scenes", sorted(audit.with_scenes))
            for entry in audit.audit
            for name in entry.suites
            if audit.suite_family(name) == "captions"
        },
        **{
            name: (f"its classes are those of `{suite.attribute}`", _with_groups(audit, suite.attribute))
            for name, suite in audit.suites_of_files.items()
            if suite.attribute is not None
        },
        ZERO_SHOT: ("zero-shot accuracy needs labels of classes", sorted(audit.with_classes)),
    }
    people = sorted(name for name, each in audit.declarations.items() if each.of_people)
    for i, entry in enumerate(audit.audit):
        named = entry.datasets if entry.datasets != "all" and "suites" in entry.model_fields_set else ()
        for suite in entry.suites:
            why, having = needs.get(suite, ("descriptions of people need people", people))
            if lacking := [name for name in named if not audit.can_answer(name, suite)]:
                yield unfit(
                    ("audit", i, "suites", entry.suites.index(suite)),
                    suite,
                    f"suites of prompts alone for {', '.join(lacking)}: {why}, which {', '.join(having)} have",
                )


def _unfit_fits(audit: Audit) -> Iterator[InitErrorDetails]:
    """Report mitigations that an entry names and that would be fitted on images which are not embedded."""
    for i, entry in enumerate(audit.audit):
        for j, name in enumerate(() if entry.mitigations == "all" else entry.mitigations):
            for _, dataset in audit.mitigations[name].fitted_on_datasets:
                if lacking := [model for _, model in audit.rectangle(entry) if (dataset, model) not in audit.cells]:
                    yield unfit(
                        ("audit", i, "mitigations", j),
                        name,
                        f"an entry that asks {', '.join(dict.fromkeys(lacking))} something about `{dataset}` too: this "
                        "mitigation is fitted on its images",
                    )


def _pairs_without_captions(audit: Audit) -> Iterator[InitErrorDetails]:
    """Report datasets that are named as image-text pairs and have no captions of their own."""
    named: list[tuple[tuple[str | int, ...], str]] = [
        (("mitigations", name, key), dataset)
        for name, settings in audit.mitigations.items()
        for key, dataset in settings.pair_datasets
    ]
    named += [(("retrieval", "datasets", i), dataset) for i, dataset in enumerate(audit.retrieval.datasets)]
    having = [name for name, declared in audit.declarations.items() if declared.captions]
    for location, dataset in named:
        if dataset not in having:
            expected = f"a dataset whose images have captions of their own: {', '.join(having) or 'none here has'}"
            yield unfit(location, dataset, expected)


def _composites_alone(audit: Audit) -> Iterator[InitErrorDetails]:
    lacking = {cell for cell, suites in audit.cells.items() if _COMPOSITE in suites and _BASE not in suites}
    for i, entry in enumerate(audit.audit):
        if _COMPOSITE in entry.suites and lacking.intersection(audit.rectangle(entry)):
            yield unfit(
                ("audit", i, "suites", entry.suites.index(_COMPOSITE)),
                _COMPOSITE,
                f"`{_BASE}` beside it for the same datasets and encoders: alone it has no results",
            )
