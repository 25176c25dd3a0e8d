"""A sequence classifier of transformers as a scorer of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_json
from plumbline.encoders.batching import FittingForward
from plumbline.encoders.encoder import Placement
from plumbline.errors import EncodingError, ScoringError
from plumbline.scorers.classifier_folder import ClassifierFiles, classifier_files
from plumbline.scorers.label_map import Activation, activation_of, label_positions
from plumbline.scorers.length_batches import length_batches
from plumbline.scorers.loaded_classifier import load_files
from plumbline.scorers.scorer import Scored
from plumbline.scorers.settings import ClassifierSettings
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES

if TYPE_CHECKING:
    import torch

_CODE = 1
"""Raised whenever the same files and settings would give a text another score."""

CPU_TOKENS, GPU_TOKENS = 4096, 65_536
"""Tokens of a forward pass, padding included, where the settings say nothing."""

CHUNK_ROWS = 4096
"""Texts that are tokenised and sorted by length together; the next ones are tokenised meanwhile."""

NO_TOKENS = "the classifier's tokenizer makes no tokens of this text"


def load_classifier(
    settings: ClassifierSettings, *, project: Path, fetched: Path, placement: Placement
) -> ClassifierScorer:
    """Load a classifier from disk.

    Raises
    ------
    CheckpointError
        If it is not on disk or cannot be loaded whole, from the digested files alone; nothing is downloaded and
        nothing is random.
    ConfigError
        If its labels or how its outputs become scores cannot be told; says which labels it has.
    """
    files = classifier_files(settings.address, project=project, fetched=fetched)
    return ClassifierScorer(files, settings, placement)


class ClassifierScorer:
    """Scores texts by a sequence classifier: `plumbline.scorers.scorer.Scorer`.

    A score is the sigmoid of the label's output, or its softmax where one of the labels holds. Texts that are longer
    than the model takes are cut at their end, `truncated`. The empty text is scored as it is: as its special tokens
    alone. On a CPU, in float32, a score moves by less than 1e-5 with the texts that share its batch. In 16 bits scores
    are rounded: those of a random RoBERTa of base size moved by 0.0005 on average in float16, 0.006 in bfloat16.

    Parameters
    ----------
    files : ClassifierFiles
        Where it is, with the digests that were read before loading.
    settings : ClassifierSettings
    placement : Placement

    Attributes
    ----------
    without : tuple of str
        Scored attributes that the model has no label for; `unitary/unbiased-toxic-roberta` lacks flirtation.
    passes : int
        Forward passes by now.
    """

    offline_stand_in: bool = False

    def __init__(self, files: ClassifierFiles, settings: ClassifierSettings, placement: Placement) -> None:
        self._dtype = _dtype(settings.dtype, placement)
        self._loaded = loaded = load_files(
            files, device=placement.device, dtype=self._dtype, max_tokens=settings.max_tokens
        )
        self._positions = label_positions(loaded.labels, settings.labels, where=files.folder)
        self._activation: Activation = (
            activation_of(files.config, len(loaded.labels), where=files.folder)
            if settings.activation == "auto"
            else settings.activation
        )
        self._batch_tokens = settings.batch_tokens or (
            CPU_TOKENS if placement.device == "cpu" else GPU_TOKENS
        )
        self._forward = FittingForward(self._scores_of)
        self.attributes: tuple[str, ...] = tuple(self._positions)
        self.without = tuple(name for name in SCORED_ATTRIBUTES if name not in self._positions)
        self.version = files.version
        self.identity = digest_json({**self._computation(placement), "files": files.digest})

    @property
    def passes(self) -> int:
        """See the class."""
        return self._forward.passes

    def score(self, texts: Sequence[str]) -> Iterator[tuple[int, Scored]]:
        """See `Scorer`; texts of one length come together, so that the order is another one."""
        for start, tokens in self._tokenised(texts):
            readable = [i for i, ids in enumerate(tokens.ids) if ids]
            for i, ids in enumerate(tokens.ids):
                if not ids:
                    yield start + i, Scored(dict.fromkeys(self.attributes, float("nan")), reason=NO_TOKENS)
            lengths = [len(tokens.ids[i]) for i in readable]
            for batch in length_batches(lengths, most_tokens=self._batch_tokens):
                rows = [readable[i] for i in batch]
                scores = self._run([tokens.ids[i] for i in rows])
                for i, row in zip(rows, scores.tolist(), strict=True):
                    yield start + i, Scored(dict(zip(self.attributes, row)), truncated=tokens.truncated[i])

    def _computation(self, placement: Placement) -> Mapping[str, Any]:
        """Return what the scores depend on besides the files; neither the size of batches nor their device's number."""
        return {
            "kind": "classifier",
            "code": _CODE,
            "labels": self._positions,
            "activation": self._activation,
            "max_tokens": self._loaded.max_tokens,
            "dtype": self._dtype,
            "device": placement.device_kind,
            "attention": self._loaded.attention,
            "libraries": {
                name: version(name).split("+")[0] for name in ("torch", "transformers", "tokenizers")
            },
        }

    def _tokenised(self, texts: Sequence[str]) -> Iterator[tuple[int, _Tokens]]:
        """Yield the place of each chunk and its tokens; one chunk ahead of the model, in a thread."""
        starts = range(0, len(texts), CHUNK_ROWS)
        with ThreadPoolExecutor(1, "tokeniser") as thread:
            coming = None
            for start in starts:
                ready, coming = coming, thread.submit(self._tokens, texts[start : start + CHUNK_ROWS])
                if ready is not None:
                    yield start - CHUNK_ROWS, ready.result()
            if coming is not None:
                yield starts[-1], coming.result()

    def _tokens(self, texts: Sequence[str]) -> _Tokens:
        most = self._loaded.max_tokens
        ids = self._loaded.tokenizer(list(texts), verbose=False)["input_ids"]
        truncated = [len(row) > most for row in ids]
        long = [i for i, is_long in enumerate(truncated) if is_long]
        if long:
            cut = self._loaded.tokenizer([texts[i] for i in long], truncation=True, max_length=most)[
                "input_ids"
            ]
            for i, row in zip(long, cut, strict=True):
                ids[i] = row
        return _Tokens(ids, truncated)

    def _run(self, ids: list[list[int]]) -> NDArray[np.float32]:
        try:
            scores = self._forward(ids)
        except EncodingError as error:
            raise ScoringError(
                "the device has not the memory for a single text",
                where=self.version,
                found=error.found,
                hint="set `max_tokens` of the scorer, or `device: cpu`",
            ) from error
        if not np.isfinite(scores).all():
            raise ScoringError(
                "the classifier gave no number",
                where=self.version,
                found=f"{np.count_nonzero(~np.isfinite(scores))} of {scores.size} scores in {self._dtype}",
                hint="set `dtype: float32` of the scorer: some models overflow in 16 bits",
            )
        return scores

    def _scores_of(self, ids: list[list[int]]) -> NDArray[np.float32]:
        """Return (b, attributes) scores of texts by their tokens."""
        import torch

        tokens, mask = _padded(ids, self._loaded.pad)
        device = self._loaded.model.device
        with torch.inference_mode():
            logits = self._loaded.model(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
            wide = logits.double()
            scores = wide.sigmoid() if self._activation == "sigmoid" else wide.softmax(dim=-1)
            chosen = scores[:, list(self._positions.values())]
        return np.asarray(chosen.cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True)
class _Tokens:
    ids: list[list[int]]
    truncated: list[bool]


def _padded(ids: list[list[int]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens, padded on the right, and which of them are there."""
    import torch

    width = max(map(len, ids))
    rows = np.full((len(ids), width), pad, dtype=np.int64)
    for row, own in zip(rows, ids):
        row[: len(own)] = own
    lengths = np.array([len(own) for own in ids])
    return torch.from_numpy(rows), torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))


def _dtype(wanted: str, placement: Placement) -> str:
    """Return the number type of the weights; float16 has eight times the precision of bfloat16."""
    if placement.device == "cpu":
        return "float32"
    if wanted == "auto":
        return "float32" if placement.dtype == "float32" else "float16"
    return wanted
