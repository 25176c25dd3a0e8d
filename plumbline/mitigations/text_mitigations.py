"""Mitigations that act on text features, behind one interface: settings that fit, and what was fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from plumbline.digests import digest_file
from plumbline.encoders.encoder import DualEncoder
from plumbline.errors import MetricError
from plumbline.mitigations.settings import MitigationSettings
from plumbline.mitigations.training import Progress
from plumbline.mitigations.training_rows import ImageTextPairs, TrainingRows
from plumbline.storage import ShardCache


@dataclass(frozen=True)
class FittedMitigation:
    """A fitted mitigation.

    Attributes
    ----------
    settings : mapping
        Every setting, `method` among them, as JSON values; the seed too where one was used.
    parameters : mapping of str to array
        What applies it, by name; float32, saved as safetensors.
    losses : mapping of str to (steps,) float64
        Loss curves by name; empty where nothing is trained.
    fitted_on : str
        Digest of all that the parameters depend on: encoder, texts, training rows, settings, code version.
    train_ids : tuple of str
        Image ids of the rows that were fitted on; empty where no image was used.
    """

    settings: Mapping[str, Any]
    parameters: Mapping[str, NDArray[np.float32]]
    fitted_on: str
    losses: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    train_ids: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """Return the method's name."""
        return str(self.settings["method"])


# --- What fitting a mitigation of texts may use.

EmbedTexts = Callable[[Sequence[str]], NDArray[np.float32]]
"""(b,) texts -> (b, d) float32 embeddings, as the encoder gives them, not normalised."""


class RowsOf(Protocol):
    """Gives the training rows of a dataset, None for the one that is judged; MetricError where there are none."""

    def __call__(self, attribute: str, dataset: str | None = None, *, labelled: bool = True) -> TrainingRows:
        """Return the rows that have a label of an attribute; with `labelled` false those without any label too."""


PairsOf = Callable[[str], ImageTextPairs]
"""Id of a dataset -> its image-text pairs that may be trained on; MetricError where there are none."""


def _no_pairs(dataset: str) -> ImageTextPairs:
    raise MetricError("there are no image-text pairs here", found=dataset)


@dataclass(frozen=True)
class FitContext:
    """What fitting a mitigation of texts may use.

    Attributes
    ----------
    encoder : DualEncoder
    embed : callable
        See `EmbedTexts`.
    rows : callable
        See `RowsOf`.
    seed : int
    store : ShardCache or None
        Where training is kept, so that it can be interrupted.
    progress : callable or None
    file : callable
        Path of a file that the audit file names, from what stands there.
    pairs : callable
        See `PairsOf`.
    """

    encoder: DualEncoder
    embed: EmbedTexts
    rows: RowsOf
    seed: int
    store: ShardCache | None = None
    progress: Progress | None = None
    file: Callable[[str], Path] = Path
    pairs: PairsOf = _no_pairs


class TextMitigationSettings(MitigationSettings):
    """Settings of a mitigation that acts on texts, which know how it is fitted and applied."""

    model_config = ConfigDict(serialize_by_alias=True)
    reads_given: ClassVar[bool] = False
    """Whether `fit` reads the file of `from`, with `read_artefact`; otherwise an audit file may not name one."""

    from_: str | None = Field(default=None, alias="from")
    """a safetensors file of parameters that others have fitted; relative paths start in the folder of the command"""

    @field_validator("from_")
    @classmethod
    def _is_read(cls, path: str | None) -> str | None:
        if path is not None and not cls.reads_given:
            method = cls.model_fields["method"].default
            raise ValueError(f"no `from`: the method `{method}` reads no parameters that others have fitted")
        return path

    @property
    def trained_on(self) -> str:
        """Return what it is fitted on, in words; empty where nothing is."""
        return "" if self.from_ is None else f"by others: parameters of {self.from_}"

    def fit(self, context: FitContext) -> FittedMitigation:
        """Fit the mitigation with these settings.

        Raises
        ------
        ConfigError
            If the encoder's family lacks what the method needs.
        MetricError
            If there are no rows to train on, or training gives no finite loss.
        """
        raise NotImplementedError

    @staticmethod
    def apply(
        fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the mitigated (n, d) features of n texts, each as long as its row of `features`."""
        raise NotImplementedError


class TrainedMitigationSettings(TextMitigationSettings):
    """Settings of a mitigation of texts that is trained on images."""

    fit_on: str | None = None
    """id of the dataset that it is fitted on; the one that it is judged on when absent"""

    pairs: str | None = None
    """id of a dataset of image-text pairs, such as COCO or LAION; when absent captions are made of labels"""

    @property
    def fitted_on_datasets(self) -> tuple[tuple[str, str], ...]:
        """Return key and id of each dataset that it is fitted on in place of the one that it is judged on."""
        return () if self.fit_on is None else (("fit_on", self.fit_on),)

    @property
    def pair_datasets(self) -> tuple[tuple[str, str], ...]:
        """Return key and id of the dataset whose image-text pairs it is trained on, if any."""
        return () if self.pairs is None else (("pairs", self.pairs),)

    @model_serializer(mode="wrap")
    def _as_before_without_pairs(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the key out where it says nothing: what was trained before it existed is found again."""
        content: dict[str, Any] = handler(self)
        return {key: value for key, value in content.items() if key != "pairs" or value is not None}


# --- Parameters of a mitigation that others have fitted, from a safetensors file: every shape is checked
# before use.
#
# A file may be that of `plumbline export-mitigation`, or of the authors of a method, with its tensors
# named as here.


@dataclass(frozen=True)
class Artefact:
    """Parameters by name, float32, and the sha256 of the file that they are from."""

    parameters: dict[str, NDArray[np.float32]]
    sha256: str


def read_artefact(path: Path, shapes: Mapping[str, tuple[str | int, ...]]) -> Artefact:
    """Return the parameters that a file holds.

    Parameters
    ----------
    path : Path
        A safetensors file of F16, F32 or F64.
    shapes : mapping of str to tuple
        Name of each parameter -> its shape: lengths, or letters for lengths that are equal wherever they stand.

    Raises
    ------
    MetricError
        If the file cannot be read, lacks a parameter, has another one, or one is of another shape, of no floating
        type, or not finite in float32: with how many numbers, and row and column of the first.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors = load_file(path)
    except (OSError, SafetensorError, ValueError, OverflowError, MemoryError) as error:
        raise MetricError(
            "the parameters of a mitigation cannot be read", where=path, found=error, expected="a safetensors file"
        ) from error
    except (TypeError, LookupError, AttributeError) as error:  # NumPy has no bfloat16, and none of the narrower ones
        raise MetricError(
            "the parameters of a mitigation are of a type that is not read",
            where=path,
            found=error,
            expected="F16, F32 or F64",
            hint="convert them, such as `tensor.float()`, and write the file again",
        ) from error
    if set(tensors) != set(shapes):
        raise MetricError(
            "a file holds other parameters than this mitigation has",
            where=path,
            found=", ".join(sorted(tensors)) or "nothing",
            expected=", ".join(sorted(shapes)),
        )
    lengths: dict[str, int] = {}
    parameters: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        array = tensors[name]
        known = [length if isinstance(length, int) else lengths.get(length) for length in shape]
        fits = array.ndim == len(shape) and all(k in (None, n) for k, n in zip(known, array.shape))
        if not fits:
            raise MetricError(
                f"the parameter `{name}` is of another shape than this encoder and its other parameters need",
                where=path,
                found=array.shape,
                expected=f"({', '.join(str(s if k is None else k) for s, k in zip(shape, known))})",
            )
        lengths |= {length: n for length, n in zip(shape, array.shape) if isinstance(length, str)}
        if array.dtype.kind != "f" or not array.size:
            raise MetricError(
                f"the parameter `{name}` holds no floating-point numbers",
                where=path,
                found=f"{array.dtype} of shape {array.shape}",
                expected="at least one, of a floating type",
            )
        with np.errstate(over="ignore"):
            parameters[name] = array.astype(np.float32)
        if len(wrong := np.argwhere(~np.isfinite(parameters[name]))):
            place = ", ".join(f"{axis} {at + 1}" for axis, at in zip(("row", "column"), wrong[0]))
            raise MetricError(
                f"{len(wrong)} of {array.size} numbers of the parameter `{name}` are not finite",
                where=f"{path}, {place}",
                found=array[tuple(wrong[0])],
                expected="numbers that float32 has",
            )
    return Artefact(parameters, digest_file(path))
