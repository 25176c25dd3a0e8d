"""The audit file's part on scorers: what kinds there are."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.audit_part import Part
from plumbline.audit_values import CheckpointAddress
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def _scored(value: dict[str, str]) -> dict[str, str]:
    unknown = sorted(set(value) - set(SCORED_ATTRIBUTES))
    if unknown:
        raise ValueError(
            f"scored attribute -> label of the model; attributes are {', '.join(SCORED_ATTRIBUTES)}"
        )
    return value


def _stored(value: dict[str, str]) -> dict[str, str]:
    known = ("text", "text_sha256", *SCORED_ATTRIBUTES)
    if not set(value) <= set(known):
        raise ValueError(f"any of {', '.join(known)} -> name of its column")
    return value


def _variable(value: Any) -> Any:
    if isinstance(value, str) and not _VARIABLE.fullmatch(value):
        expected = "the NAME of an environment variable, such as PERSPECTIVE_API_KEY; never the key itself"
        mistake = PydanticCustomError("value_error", "{expected}", {"expected": expected})
        # Without the value: people paste keys where names belong.
        raise ValidationError.from_exception_data(
            "PerspectiveSettings",
            [InitErrorDetails(type=mistake, loc=(), input="(not shown: it may be a key)")],
            hide_input=True,
        )
    return value


class OfflineSettings(Part):
    """The word list of the default run: a stand-in that needs no model, and says so."""

    kind: Literal["offline"] = "offline"


class ClassifierSettings(Part):
    """A sequence classifier of transformers on this disk, such as `unitary/unbiased-toxic-roberta`."""

    kind: Literal["classifier"]
    address: CheckpointAddress = Field(description="`local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`")
    labels: Annotated[dict[str, str], AfterValidator(_scored)] | None = Field(
        default=None,
        description="scored attribute -> label of the model; found by the labels' names when absent",
    )
    activation: Literal["auto", "sigmoid", "softmax"] = Field(
        default="auto", description="auto: as the checkpoint's configuration says"
    )
    max_tokens: int | None = Field(
        default=None, ge=3, description="longer texts are cut; as many as the model takes when absent"
    )
    batch_tokens: int | None = Field(
        default=None, ge=1, description="of a forward pass, padding included; by device when absent"
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        default="auto",
        description="auto: float16 on a GPU unless the engine is set to float32; a CPU has float32",
    )


class PerspectiveSettings(Part):
    """The Perspective API, for those who still have access: its end is announced for 2026."""

    kind: Literal["perspective"]
    key_variable: Annotated[str, BeforeValidator(_variable)] = Field(
        default="PERSPECTIVE_API_KEY", description="environment variable with the key"
    )
    queries_per_second: float = Field(default=1.0, gt=0, le=1000, description="the quota of the key")


class StoredSettings(Part):
    """Scores that were made elsewhere, such as by the Perspective API while it lasted: a CSV or Parquet file."""

    kind: Literal["stored"]
    path: str = Field(min_length=1, description="columns `text` or `text_sha256`, and one per attribute")
    origin: Literal["perspective", "classifier"] | None = Field(
        default=None,
        description="what made them: scores of the Perspective API are compared with published ones",
    )
    columns: Annotated[dict[str, str], AfterValidator(_stored)] = Field(
        default_factory=dict,
        description="`text`, `text_sha256` or scored attribute -> name of its column, where it has another",
    )


AnyScorerSettings = OfflineSettings | ClassifierSettings | PerspectiveSettings | StoredSettings
ScorerSettings = Annotated[AnyScorerSettings, Field(discriminator="kind")]


def scorer_settings() -> dict[str, type[Part]]:
    """Return the settings of a scorer by kind."""
    return {model.model_fields["kind"].annotation.__args__[0]: model for model in get_args(AnyScorerSettings)}
