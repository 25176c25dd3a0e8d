"""What the audit file says of a scorer: its settings, which know what they read and how it is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.audit_part import Part
from plumbline.audit_values import CheckpointAddress
from plumbline.digests import digest_file
from plumbline.errors import ConfigError
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES

if TYPE_CHECKING:
    from plumbline.encoders.encoder import Placement
    from plumbline.scorers.scorer import Scorer

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


class ScorerSettings(Part):
    """Settings of one scorer; a kind adds its keys. Their scorers are imported where they are wanted."""

    kind: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the environment variables that must be set."""
        return ()

    def content(self, *, project: Path, fetched: Path) -> str | None:
        """Return the digest of what scores depend on beside the settings, nothing loaded; None where that is nothing.

        Parameters
        ----------
        project : Path
            Where relative paths start.
        fetched : Path
            Folder in which `plumbline fetch` keeps what it got.

        Raises
        ------
        CheckpointError, ConfigError
            If a file is not there.
        """
        return None

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """Return the scorer, its model on the placement; nothing is downloaded.

        Raises
        ------
        CheckpointError
            If a classifier is not on disk or not one that can be loaded.
        ConfigError
            If its labels cannot be matched.
        ScoringError
            If stored scores are not there or cannot be read.
        """
        raise NotImplementedError


class OfflineSettings(ScorerSettings):
    """The word list of the default run: a stand-in that needs no model, and says so."""

    kind: Literal["offline"] = Field(default="offline", description="what scores")

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        from plumbline.scorers.offline import OfflineScorer

        return OfflineScorer().identity

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        from plumbline.scorers.offline import OfflineScorer

        return OfflineScorer()


class ClassifierSettings(ScorerSettings):
    """A sequence classifier of transformers on this disk, such as `unitary/unbiased-toxic-roberta`."""

    kind: Literal["classifier"] = Field(description="what scores")
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

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        from plumbline.scorers.classifier_folder import classifier_files

        return classifier_files(self.address, project=project, fetched=fetched).digest

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        from plumbline.scorers.classifier import load_classifier

        return load_classifier(self, project=project, fetched=fetched, placement=placement)


class PerspectiveSettings(ScorerSettings):
    """The Perspective API, for those who still have access: its end is announced for 2026."""

    kind: Literal["perspective"] = Field(description="what scores")
    key_variable: Annotated[str, BeforeValidator(_variable)] = Field(
        default="PERSPECTIVE_API_KEY", description="environment variable with the key"
    )
    queries_per_second: float = Field(default=1.0, gt=0, le=1000, description="the quota of the key")

    @property
    def variables(self) -> tuple[str, ...]:
        """See `ScorerSettings`."""
        return (self.key_variable,)

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        from plumbline.scorers.perspective import PerspectiveScorer

        return PerspectiveScorer(self)


class StoredSettings(ScorerSettings):
    """Scores that were made elsewhere, such as by the Perspective API while it lasted: a CSV or Parquet file."""

    kind: Literal["stored"] = Field(description="what scores")
    path: str = Field(min_length=1, description="columns `text` or `text_sha256`, and one per attribute")
    origin: Literal["perspective", "classifier"] | None = Field(
        default=None,
        description="what made them: scores of the Perspective API are compared with published ones",
    )
    columns: Annotated[dict[str, str], AfterValidator(_stored)] = Field(
        default_factory=dict,
        description="`text`, `text_sha256` or scored attribute -> name of its column, where it has another",
    )

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        found = self._file(project)
        if not found.is_file():
            raise ConfigError(
                "a file of stored scores that the audit file names is not there",
                where="`path` of a scorer of kind `stored`",
                found=self.path,
                expected=f"a file at {found}: relative paths start at the checkout",
            )
        return digest_file(found)

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        from plumbline.scorers.stored import StoredScorer
        from plumbline.scorers.stored_table import read_stored

        return StoredScorer(read_stored(self._file(project), self.columns))

    def _file(self, project: Path) -> Path:
        return (project / Path(self.path).expanduser()).resolve()
