"""The audit file's part on generation: models that answer, what they are asked, who scores and judges."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal, cast

from pydantic import Field, model_validator

from plumbline.audit_part import Part
from plumbline.audit_values import (
    PROMPT_KINDS,
    CheckpointAddress,
    InstructionName,
    PromptName,
    Slug,
    SourceName,
)
from plumbline.lvlm.backend import Decoding
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.tables.generation_prompts import Kind, prompt_ids
from plumbline.tables.generation_schema import NO_INSTRUCTION

TWIN_PROMPT = "characteristics"
"""What a language model is asked beside the models that were built on it."""


class LvlmEntry(Part):
    """A model that answers: a checkpoint on this disk, or an OpenAI-compatible endpoint."""

    address: CheckpointAddress | None = Field(
        default=None, description="`local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`"
    )
    endpoint: EndpointSettings | None = Field(
        default=None, description="one model behind one or several `/v1/chat/completions`"
    )
    twin: Slug | None = Field(
        default=None,
        description="id of the language model that it was built on; that is told in words what is pictured",
    )
    planted_source: SourceName | None = Field(
        default=None, description="for checkpoints of the planted world: their source"
    )

    @model_validator(mode="after")
    def _one_place(self) -> LvlmEntry:
        if (self.address is None) == (self.endpoint is None):
            raise ValueError("either `address` or `endpoint`")
        return self


class GenerateEntry(Part):
    """One design: these models about these images, each prompt with each instruction and each seed."""

    lvlms: Literal["all"] | tuple[Slug, ...] = Field(default="all", description="ids of `lvlms`")
    datasets: tuple[Slug, ...] = Field(description="ids of `datasets`")
    subsets: Literal["all"] | tuple[str, ...] = Field(
        default="all", description="parts of a dataset, as its reader names them"
    )
    prompts: tuple[PromptName, ...] = Field(
        default=("main",), min_length=1, description="ids of prompts, or main, additional, numeric"
    )
    instructions: tuple[InstructionName, ...] = Field(
        default=(NO_INSTRUCTION,), min_length=1, description="ids of instructions that go before a prompt"
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        default=(0, 1, 2), min_length=1, description="an answer each"
    )
    occupations: tuple[str, ...] | None = Field(default=None, description="only these")
    sets_per_occupation: int | None = Field(default=None, ge=1, description="at most so many sets of each")

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
    def asks_twins(self) -> bool:
        """Return whether a language model is asked too: it gets one prompt, as it is."""
        return TWIN_PROMPT in self.prompt_ids and NO_INSTRUCTION in self.instructions


class DecodingSettings(Part):
    """How tokens are drawn; the same for every local model. transformers samples with a silent `top_k` of 50."""

    max_new_tokens: int = Field(default=512, ge=1, description="of an answer")
    temperature: float = Field(default=0.75, ge=0, description="0 takes the likeliest token")
    top_k: int = Field(default=50, ge=0, description="likeliest tokens that are drawn from; 0: all")
    top_p: float = Field(default=1.0, gt=0, le=1, description="share of probability that is drawn from")

    @property
    def decoding(self) -> Decoding:
        """Return it as the backends take it."""
        return Decoding(**self.model_dump())


class Limit(Part):
    """The largest plan that an audit may start; without a number there is no limit."""

    rows: int | None = Field(default=None, ge=0, description="answers")
    tokens: int | None = Field(default=None, ge=0, description="read and written")
    hours: float | None = Field(default=None, ge=0, description="at the rates of `plumbline plan`")
    cost: float | None = Field(default=None, ge=0, description="in the currency of the endpoints' prices")


class Generation(Part):
    """How texts are generated."""

    decoding: DecodingSettings = Field(default=DecodingSettings(), description="how tokens are drawn")
    slice_images: int = Field(default=5000, ge=1, description="images of a slice; a set is never cut")
    limit: Limit = Field(default=Limit(), description="the largest plan that may start")


class Language(Part):
    """How words are counted and who judges them."""

    min_count: int = Field(default=10, ge=1, description="3 for small samples of an API")
    association_threshold: float = Field(default=1.0, description="of PMI, above which a word is a group's")
    log_base: float = Field(default=2.0, gt=1, description="of PMI")
    min_sets: int = Field(
        default=35, ge=1, description="counterfactual sets; an occupation with fewer is left out"
    )
    most_unreadable: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="largest share of ratings without a number; above it they are undefined",
    )
    dictionaries: str | None = Field(default=None, description="your copy of the SADCAT dictionaries, a CSV")
    annotations: str | None = Field(default=None, description="a CSV of human annotations")
    judge: EndpointSettings | None = Field(
        default=None, description="the model that names stereotypes; without it that column says so"
    )
