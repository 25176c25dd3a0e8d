"""Entries of the audit file: datasets, encoders, generative models, thresholds, statistics."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, cast

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from plumbline.catalog.prompts import Articles, Kind, prompt_ids
from plumbline.catalog.schema import MOST_DRAWS, NO_INSTRUCTION
from plumbline.catalog.suites import VARIANT_OF, ZeroShotSettings
from plumbline.checkpoints.addresses import STORED
from plumbline.config.parts import Part, unfit
from plumbline.config.values import (
    AUDITED_SUITES,
    PROMPT_KINDS,
    CheckpointAddress,
    FamilyName,
    FilterName,
    InstructionName,
    PromptName,
    PublishedName,
    ReaderName,
    Root,
    Shares,
    Slug,
    SourceName,
    StoragePlace,
    SuiteName,
    SuiteNames,
    Wording,
)
from plumbline.datasets.folder import ColumnMap, Text
from plumbline.datasets.records import LABEL_COLUMNS, Reader
from plumbline.datasets.registry import MAPPED, reader_for
from plumbline.digests import digest_json
from plumbline.encoders.families import FAMILIES
from plumbline.encoders.stored_embeddings import EmbeddingsSettings
from plumbline.errors import suggestion
from plumbline.generators.stored_answers import StoredAnswersSettings
from plumbline.http.settings import EndpointSettings
from plumbline.own_code import Reference


class DatasetEntry(Part):
    """A dataset: its reader, its folder, and the shares its labels must have before anything is computed on it."""

    reader: ReaderName
    """how the folder is read"""
    root: Root
    """a folder, `hf-hub:datasets/ORG/NAME@COMMIT`, or `planted:NAME` for one of the planted world"""
    balance: dict[str, Shares] = Field(default_factory=dict)
    """record column, or `COLUMN_gender` with the automatic label -> allowed share of each label"""
    filters: dict[SuiteName, FilterName] = Field(default_factory=dict)
    """suite -> named row filter"""
    padding: float | None = None
    """FairFace exists with 0.25 and 1.25: part of its identity"""
    quarantine_rate: float | None = Field(default=None, ge=0, le=1)
    """in place of `thresholds.quarantine_rate`, as for a list with dead links"""
    map: ColumnMap | None = None
    """for the readers `folder`, `listing` and `counts`: which column of the table is what"""
    zero_shot: ZeroShotSettings = ZeroShotSettings()
    """of a dataset with labels of things: how its classes are put into words"""
    published: PublishedName | None = None
    """the published dataset that a `listing`, `counts` or `img2dataset` is of: what papers print of it is compared"""

    @model_validator(mode="after")
    def _map_fits(self) -> DatasetEntry:
        if (self.reader in MAPPED) != (self.map is not None):
            raise ValueError(f"`map` with the readers {', '.join(MAPPED)}, and only with them")
        if self.map is not None and (self.reader == "counts") != (self.map.path is None):
            raise ValueError("`map.path` with the readers folder and listing; a table of counts has no images to name")
        if self.map is not None and self.map.total is not None and self.reader != "counts":
            raise ValueError("`map.total` with the reader counts alone")
        if self.published is not None and self.reader not in ("listing", "counts", "img2dataset"):
            raise ValueError("`published` with the readers listing, counts and img2dataset alone")
        return self

    @model_validator(mode="after")
    def _balance_is_of_labels(self) -> DatasetEntry:
        labels = dict.fromkeys((*LABEL_COLUMNS, *(self.map.attributes if self.map is not None else ())))
        known = (*labels, *(f"{column}_gender" for column in labels if column != "gender"))
        if unknown := [name for name in self.balance if name not in known]:
            expected = f"one of {', '.join(known)}{suggestion(unknown[0], known)}"
            mistake = unfit(("balance", unknown[0]), unknown[0], expected)
            raise ValidationError.from_exception_data("DatasetEntry", [mistake])
        return self

    @property
    def read_as(self) -> str:
        """Return the digest of the source and how it is read; the data of a name may have had another source."""
        return digest_json(self.model_dump(mode="json", include={"reader", "root", "map", "padding"}))

    @property
    def least_shown(self) -> int:
        """Return how many images of a group a number is shown of; 1 for published datasets."""
        return self.open_reader().least_shown

    def open_reader(self) -> Reader:
        """Return the reader of this dataset."""
        return reader_for(self.reader, self.map)


class OwnQuestion(Part):
    """The column of the scorecard that a metric of one's own answers, and which of its rows does."""

    topic: Text
    """what is asked, for the middle of a sentence, such as `near misses`"""
    suite: SuiteName
    """as in `audit`; one by path goes by the name of its file"""
    event: Text
    """of the suite"""
    attribute: Text
    """whose groups are compared, such as `gender`"""


class OwnMetricEntry(Part):
    """A metric of one's own: a function that gives one value a group, with the project's intervals around it."""

    function: Reference
    """`module:function` of (scores, event, codes, groups), found beside the audit file or installed"""
    suites: tuple[SuiteName, ...] = ()
    """suites of outcomes that it reads; without it every one that is asked"""
    bounds: tuple[Annotated[float, Field(allow_inf_nan=True)], Annotated[float, Field(allow_inf_nan=True)]] = (0.0, 1.0)
    """in which every value lies"""
    resamples: int = Field(default=1000, ge=100, le=MOST_DRAWS)
    """at most so many draws of bootstrap and test: the function is called for each"""
    question: OwnQuestion | None = None
    """its column of the scorecard; none without it"""


class Predictions(Part):
    """How tables of predictions are read that were made elsewhere."""

    checkpoint: CheckpointAddress | None = None
    """address of the checkpoint that gave them: what papers print of it is compared"""
    image: Text | None = None
    """column with the image's path or sha256, where a row is an image; as `map.path` of the dataset, or `path`, if
    absent"""
    names: dict[Text, Text] = Field(default_factory=dict)
    """what the tables call a candidate -> the candidate, its prompt, a category of the suite, or a group of people"""


class EncoderEntry(Part):
    """A checkpoint: `local-dir:PATH`, `hf-hub:ORG/NAME@COMMIT` or an open_clip `ARCHITECTURE/TAG`; see `families`.

    `@fetched` in place of a commit: that of the first `plumbline fetch`. `stored:PATH` is a table of predictions that
    were made elsewhere, or a folder of such tables, each named as its dataset or as the dataset's `map.index`; or a
    folder of embeddings.
    """

    address: CheckpointAddress
    """`local-dir:PATH`, `stored:PATH`, `hf-hub:ORG/NAME@COMMIT` or `ARCHITECTURE/TAG`"""
    family: FamilyName | None = None
    """which library reads it; found from its files when absent"""
    model: str | None = None
    """architecture of a `.pt` that open_clip's trainer wrote: its name, or a JSON file as in open_clip's model_configs
    (a relative path starts where the command runs); by default the name in `params.txt` beside it"""
    factors: dict[str, str] = Field(default_factory=dict)
    """design factors, such as size or data source"""
    wording: Wording | None = None
    """of the Trident prompts; that of the encoder's family when absent"""
    planted_source: SourceName | None = None
    """for checkpoints of the planted world: their source"""
    predictions: Predictions | None = None
    """with `stored:`: how its tables are read"""
    embeddings: EmbeddingsSettings | None = None
    """with `stored:`: how its embeddings are read, and where those of texts are"""

    @model_validator(mode="after")
    def _stored_alone(self) -> EncoderEntry:
        stored = self.address.startswith(STORED)
        family = self.family is not None and FAMILIES[self.family].stored
        if stored != family and not (stored and self.family is None):
            raise ValueError("a family of what is stored with an address `stored:PATH`, and no other")
        if (self.predictions or self.embeddings) and not stored:
            raise ValueError("`predictions` and `embeddings` with an address `stored:PATH`, and only with it")
        if self.predictions and self.embeddings:
            raise ValueError("either `predictions` or `embeddings`")
        return self

    @property
    def loaded_address(self) -> str:
        """Return the address of the checkpoint that is loaded: beside stored embeddings that which embeds texts."""
        return (self.embeddings and self.embeddings.texts) or self.address

    @property
    def study_address(self) -> str:
        """Return the address by which a checkpoint of the studies is recognised."""
        read_as = self.predictions or self.embeddings
        return (read_as and read_as.checkpoint) or self.address


class AuditEntry(Part):
    """One rectangle of the grid: these encoders on these datasets, with these suites and mitigations."""

    encoders: Literal["all"] | tuple[Slug, ...] = "all"
    """ids of `encoders`"""
    datasets: Literal["all"] | tuple[Slug, ...] = "all"
    """ids of `datasets`; all but image-text pairs when absent"""
    suites: SuiteNames = tuple(name for name in AUDITED_SUITES if name not in VARIANT_OF)
    """what is asked; when absent all that the encoder and the dataset can answer, other readings of a suite left out"""
    mitigations: Literal["all"] | tuple[Slug, ...] = "all"
    """ids of `mitigations`; none are tried where the list is empty"""


class Retrieval(Part):
    """Image-text pairs by which mitigations of texts are judged: what recall they cost, on images they never saw."""

    datasets: tuple[Slug, ...] = ()
    """ids of `datasets` whose images have captions; the training split is left out"""
    k: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 5, 10), min_length=1)
    """recall among so many best"""
    images: int = Field(default=5000, ge=2)
    """at most so many images of each, drawn by the seed"""


class Storage(Part):
    """Where results live and how arrays are cut."""

    root: StoragePlace | None = None
    """folder or fsspec address; `.plumbline/lake` when absent"""
    shard_rows: int = Field(default=4096, ge=1)
    """images of a shard: what an interruption can cost"""


class Engine(Part):
    """How models run. What could move a number is part of the cache key."""

    batch_rows: int | None = Field(default=None, ge=1)
    """images of a forward pass; when absent 64 on a CPU, found once on a GPU"""
    workers: int | None = Field(default=None, ge=1)
    """decoding threads; one per core when absent"""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU"""
    compile: bool = False
    """run the models through torch.compile"""
    decoder: Literal["pillow", "fast"] = "pillow"
    """fast: another JPEG decoder where an encoder only resizes and crops, if embeddings agree"""


class Statistics(Part):
    """How uncertainty is computed."""

    seed: int = Field(default=20260801, ge=0)
    """the same seed gives the same numbers"""
    resamples: int = Field(default=10_000, ge=100, le=MOST_DRAWS)
    """of bootstraps"""
    permutations: int = Field(default=10_000, ge=100, le=MOST_DRAWS)
    """of tests"""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    """of intervals"""
    min_group: int = Field(default=30, ge=1)
    """images; a smaller group is flagged"""
    skew_k: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """of Skew@k; auto: the paper's 1,000, or half of the images where there are fewer than 2,000"""
    label_margin: float = Field(default=0.2, ge=0, lt=1)
    """automatic labels closer than this are left out in a second reading"""


class Thresholds(Part):
    """Limits of the quality checks."""

    label_error: float = Field(default=0.15, ge=0, le=1)
    """largest automatic-label error rate of a group"""
    quarantine_rate: float = Field(default=0.05, ge=0, le=1)
    """largest share of files not accepted"""
    regression: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={"max_skew": 0.25, "parity_difference": 0.05, "harm_rate": 0.02, "max_toxicity": 0.05}
    )
    """metric -> how far it may move away from what is fair between two audits"""

    @field_validator("regression")
    @classmethod
    def _known_metrics(cls, limits: dict[str, float]) -> dict[str, float]:
        from plumbline.metrics.family import former_metric_names
        from plumbline.provenance.diff import directed_metrics

        known, renamed = directed_metrics(), former_metric_names()
        if unknown := [name for name in limits if name not in known]:
            names = renamed.get(unknown[0]) or f"one of {', '.join(known)}"
            raise PydanticCustomError("unknown_metric", "{expected}", {"expected": f"for {unknown[0]}: {names}"})
        return limits


class Watch(Part):
    """A folder into which checkpoints are dropped, each a folder named by its id."""

    folder: str
    """holds a folder for each checkpoint; relative paths start in the folder of the command"""
    like: Slug
    """id of the encoder or local generative model that they are audited like"""


# --- The audit file's part on generation: models that answer, what they are asked, who scores and judges.

BASE_LLM_PROMPT = "characteristics"
"""What a language model is asked beside the models that were built on it."""


class DecodingSettings(Part):
    """How tokens are drawn. What is not said is as a local model's own `generation_config.json` has it, else published.

    Published is what Howard et al. drew with: temperature 0.75, and the rest as transformers has it, whose silent
    `top_k` is 50.
    """

    max_new_tokens: int | None = Field(default=None, ge=1)
    """of an answer; 512 when absent"""
    temperature: float | None = Field(default=None, ge=0)
    """0 takes the likeliest token; when absent the checkpoint's own, else 0.75"""
    top_k: int | None = Field(default=None, ge=0)
    """likeliest tokens that are drawn from, 0: all; when absent the checkpoint's own, else 50"""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """share of probability that is drawn from; when absent the checkpoint's own, else 1"""

    @property
    def values(self) -> dict[str, float]:
        """Return what is set, by the names of `Decoding`."""
        return self.model_dump(exclude_none=True)


class LvlmEntry(Part):
    """A model that answers: a checkpoint on this disk, an OpenAI-compatible endpoint, or answers given elsewhere."""

    address: CheckpointAddress | None = None
    """`local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`"""
    endpoint: EndpointSettings | None = None
    """one model behind one or several `/v1/chat/completions`"""
    answers: StoredAnswersSettings | None = None
    """answers that were given elsewhere: nothing is generated"""
    base_llm: Slug | None = None
    """id of the language model that it was built on; that is told in words what is pictured"""
    decoding: DecodingSettings = DecodingSettings()
    """how this one draws tokens, in place of `generation.decoding`"""
    thinking: bool | None = None
    """switches a checkpoint's thinking off or on, where its chat template can; when absent as the template has it"""
    planted_source: SourceName | None = None
    """for checkpoints of the planted world: their source"""

    @model_validator(mode="after")
    def _one_place(self) -> LvlmEntry:
        if [self.address, self.endpoint, self.answers].count(None) != 2:
            raise ValueError("either `address` or `endpoint` or `answers`")
        if self.answers is not None and self.decoding.values:
            raise ValueError("no `decoding` with `answers`: they were given elsewhere")
        if self.thinking is not None and self.address is None:
            raise ValueError("`thinking` with `address` alone: it is told to a checkpoint's chat template")
        return self


class GenerateEntry(Part):
    """One design: these models about these images, each prompt with each instruction and each seed."""

    lvlms: Literal["all"] | tuple[Slug, ...] = "all"
    """ids of `lvlms`"""
    datasets: tuple[Slug, ...]
    """ids of `datasets`"""
    subsets: Literal["all"] | tuple[str, ...] = "all"
    """parts of a dataset, as its reader names them"""
    prompts: tuple[PromptName, ...] = Field(default=("main",), min_length=1)
    """ids of prompts, or main, additional, numeric"""
    instructions: tuple[InstructionName, ...] = Field(default=(NO_INSTRUCTION,), min_length=1)
    """ids of instructions that go before a prompt"""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0, 1, 2), min_length=1)
    """an answer each"""
    occupations: tuple[str, ...] | None = None
    """only these"""
    sets_per_occupation: int | None = Field(default=None, ge=1)
    """at most so many sets of each"""

    @cached_property
    def prompt_ids(self) -> tuple[str, ...]:
        """Return the prompts, kinds replaced by their members, each once."""
        named = (
            ids
            for name in self.prompts
            for ids in (prompt_ids(cast("Kind", name)) if name in PROMPT_KINDS else (name,))
        )
        return tuple(dict.fromkeys(named))

    @property
    def asks_base_llms(self) -> bool:
        """Return whether a language model is asked too: it gets one prompt, as it is."""
        return BASE_LLM_PROMPT in self.prompt_ids and NO_INSTRUCTION in self.instructions


class Limit(Part):
    """The largest plan that an audit may start; without a number there is no limit."""

    rows: int | None = Field(default=None, ge=0)
    """answers"""
    tokens: int | None = Field(default=None, ge=0)
    """read and written"""
    hours: float | None = Field(default=None, ge=0)
    """at the rates of `plumbline plan`"""
    cost: float | None = Field(default=None, ge=0)
    """in the currency of the endpoints' prices"""


class Generation(Part):
    """How texts are generated."""

    decoding: DecodingSettings = DecodingSettings()
    """how tokens are drawn by models whose entry does not say otherwise"""
    articles: Articles = "repaired"
    """repaired: `an engineer` where a prompt has `a` before its slot; as_printed: `a engineer`, to the letter"""
    slice_images: int = Field(default=5000, ge=1)
    """images of a slice; a set is never cut"""
    limit: Limit = Limit()
    """the largest plan that may start"""


class OccupationEnds(Part):
    """How many occupations have the scores of their groups listed."""

    highest: int = Field(default=4, ge=0)
    """of the largest spread between groups"""
    lowest: int = Field(default=4, ge=0)
    """of the smallest; none of them is among the others"""


class Language(Part):
    """How words are counted and who judges them."""

    min_count: int = Field(default=10, ge=1)
    """3 for small samples of an API"""
    association_threshold: float = 1.0
    """of PMI, above which a word is a group's"""
    log_base: float = Field(default=2.0, gt=1)
    """of PMI"""
    min_sets: int = Field(default=35, ge=1)
    """counterfactual sets; an occupation with fewer is left out"""
    occupations: OccupationEnds = OccupationEnds()
    """how many occupations have their scores listed by group"""
    most_unreadable: float = Field(default=0.5, ge=0, le=1)
    """largest share of ratings without a number; above it they are undefined"""
    dictionaries: str | None = None
    """your copy of the SADCAT dictionaries, a CSV"""
    annotations: str | None = None
    """a CSV of human annotations"""
    judge: EndpointSettings | None = None
    """the model that names stereotypes; without it that column says so"""
