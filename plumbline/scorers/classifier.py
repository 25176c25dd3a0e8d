"""A sequence classifier of transformers as a scorer of texts: settings, files, labels, batches, scores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from plumbline.catalog.files import parse_yaml
from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.checkpoints.addresses import FETCHED, TRANSFORMERS_CONFIG, parse_address
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import CheckpointFiles, read_configuration, transformers_contents
from plumbline.checkpoints.loading import (
    architecture_of,
    clone_weights,
    loading,
    modest_run,
    pretrained,
    ready_libraries,
    require_sizes,
    whole_model,
)
from plumbline.config.values import CheckpointAddress
from plumbline.digests import digest_json
from plumbline.encoders.batching import OomRetry
from plumbline.errors import CheckpointError, ConfigError, EncodingError, ScoringError
from plumbline.scorers.scorer import Scored, ScorerSettings
from plumbline.version import library_version

if TYPE_CHECKING:
    import torch

    from plumbline.scorers.scorer import Scorer


def _scored(value: dict[str, str]) -> dict[str, str]:
    unknown = sorted(set(value) - set(SCORED_ATTRIBUTES))
    if unknown:
        raise ValueError(f"scored attribute -> label of the model; attributes are {', '.join(SCORED_ATTRIBUTES)}")
    return value


class ClassifierSettings(ScorerSettings):
    """A sequence classifier of transformers on this disk, such as `unitary/unbiased-toxic-roberta`."""

    kind: Literal["classifier"]
    """what scores"""
    address: CheckpointAddress
    """`local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`"""
    labels: Annotated[dict[str, str], AfterValidator(_scored)] | None = None
    """scored attribute -> label of the model; found by the labels' names when absent"""
    activation: Literal["auto", "sigmoid", "softmax"] = "auto"
    """auto: as the checkpoint's configuration says"""
    max_tokens: int | None = Field(default=None, ge=3)
    """longer texts are cut; as many as the model takes when absent"""
    batch_tokens: int | None = Field(default=None, ge=1)
    """of a forward pass, padding included; by device when absent"""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """auto: float16 on a GPU unless the engine is set to float32; a CPU has float32"""

    def content(self, *, project: Path, fetched: Path) -> str:
        """See `ScorerSettings`."""
        return classifier_files(self.address, project=project, fetched=fetched).digest

    def load(self, *, project: Path, fetched: Path, placement: Placement) -> Scorer:
        """See `ScorerSettings`."""
        return load_classifier(self, project=project, fetched=fetched, placement=placement)


# The folder.

_TOKENIZER = (
    ("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"),
    ("sentencepiece.bpe.model",), ("spm.model",), ("spiece.model",),
)  # fmt: skip


def classifier_files(address: str, *, project: Path, fetched: Path) -> CheckpointFiles:
    """Return the files of a classifier that is on this disk, with their digest.

    Parameters
    ----------
    address : str
        `local-dir:PATH` or `hf-hub:ORG/NAME@COMMIT`.
    project : Path
        Where relative paths start.
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.

    Raises
    ------
    CheckpointError
        If it is not on disk, its weights are not one file `model.safetensors`, it has no tokenizer, or it asks for
        code, weights, an attention or a quantisation of its own.
    """
    of = "the classifier that scores texts"
    folder = parse_address(address, project=project).folder_with(
        (TRANSFORMERS_CONFIG,), fetched=fetched, what=of, fetch="`plumbline fetch` with the scorer's id"
    )
    contents = transformers_contents(folder, of, tokenizer=_TOKENIZER, image_processor=False)
    return CheckpointFiles.read(address, folder, contents, "classifier")


def _version(files: CheckpointFiles) -> str:
    """Return for people: the commit of a hub address, else the folder's name and the beginning of the digest."""
    if files.name.startswith("hf-hub:") and not files.name.endswith(f"@{FETCHED}"):
        return files.name.removeprefix("hf-hub:")
    return f"{files.folder.name} {files.digest[:12]}"


# Which output is which scored attribute, and how outputs become scores.

Activation = Literal["sigmoid", "softmax"]


@cache
def known_labels() -> Mapping[str, tuple[str, ...]]:
    """Return the labels that are known to mean a scored attribute, by attribute."""
    content = parse_yaml((files("plumbline.scorers") / "labels.yaml").read_text("utf-8"))
    return {attribute: tuple(labels) for attribute, labels in content["labels"].items()}


def label_positions(
    labels: Sequence[str], wanted: Mapping[str, str] | None = None, *, where: object = None
) -> dict[str, int]:
    """Return the output of each scored attribute that a classifier has, in the order of `SCORED_ATTRIBUTES`.

    Parameters
    ----------
    labels : sequence of str
        The model's `id2label`, by position.
    wanted : mapping of str to str, optional
        Attribute -> label, and no others; by default found by the names of `labels.yaml`. Attributes without a
        counterpart are left out.
    where : object
        For messages.

    Raises
    ------
    ConfigError
        If the model has no label of a wanted name, two of it, or none that is known; lists the model's labels.
    """
    if wanted is None:
        outputs = {name: _position(labels, known) for name, known in known_labels().items()}
    else:
        outputs = {name: _position(labels, (label,)) for name, label in wanted.items()}
    positions = {name: position for name in SCORED_ATTRIBUTES if (position := outputs.get(name)) is not None}
    absent = sorted(set(wanted or ()) - set(positions))
    if absent or not positions:
        raise ConfigError(
            f"this classifier has no label `{wanted[absent[0]]}`"
            if wanted and absent
            else "no label of this classifier is known to mean a scored attribute",
            where=where,
            found="id2label: " + ", ".join(f"{i}: {label}" for i, label in enumerate(labels)),
            expected=f"labels for some of {', '.join(SCORED_ATTRIBUTES)}",
            hint="say which is which in the audit file, such as `labels: {toxicity: NAME}`",
        )
    return positions


def activation_of(config: Mapping[str, Any], outputs: int, *, where: object = None) -> Activation:
    """Return how a classifier's outputs become scores, as its configuration says it.

    `function_to_apply` decides, else `problem_type`, else the number of outputs: one is a sigmoid, two are classes of
    which one holds.

    Raises
    ------
    ConfigError
        If it says neither and has more than two outputs, or is no classifier: guessing would give other scores.
    """
    named = config.get("function_to_apply")
    if named in ("sigmoid", "softmax"):
        return "sigmoid" if named == "sigmoid" else "softmax"
    kind = config.get("problem_type")
    if kind == "multi_label_classification" or (kind is None and outputs == 1):
        return "sigmoid"
    if outputs > 1 and (kind == "single_label_classification" or (kind is None and outputs == 2)):
        return "softmax"
    raise ConfigError(
        "the classifier's configuration does not say how its outputs become scores",
        where=where,
        found=f"problem_type: {kind}, {outputs} outputs",
        expected="problem_type: multi_label_classification or single_label_classification",
        hint="say `activation: sigmoid` (several labels may hold) or `softmax` (one holds) in the audit file",
    )


def _position(labels: Sequence[str], known: Sequence[str]) -> int | None:
    """Return the position of the one label of the first name that is there, None where none is."""
    plain = [_plain(label) for label in labels]
    for name in map(_plain, known):
        if name in plain:
            if plain.count(name) > 1:
                raise ConfigError(
                    "this classifier has two labels of one name", found=", ".join(labels), expected=f"one `{name}`"
                )
            return plain.index(name)
    return None


def _plain(label: str) -> str:
    return re.sub(r"[\s-]+", "_", label.strip().lower())


# Batches of texts of about one length, so that little of a forward pass is padding.

MOST_ROWS = 1024


def length_batches(
    lengths: Sequence[int], *, most_tokens: int, most_rows: int = MOST_ROWS
) -> Iterator[NDArray[np.int64]]:
    """Yield positions of texts that go through the model together, each once, the longest texts first.

    Padded to its longest text a batch has at most `most_tokens` tokens, or is a single text. The longest come first so
    that a device whose memory is short says so at once.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each text.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        rows = min(max(1, most_tokens // longest), most_rows)
        yield order[start : start + rows]
        start += rows


# The model: every weight from the digested file, nothing fetched, nothing random.

# Older checkpoints have buffers that are computed today, and a layer that their class does not use.
_UNUSED = re.compile(r"(^|\.)(position_ids|token_type_ids)$|(^|\.)pooler\.")
# Tokenizers without a limit name a number like this.
_NO_LIMIT = 1_000_000


def _class_of(transformers: Any, folder: Path) -> Any:
    config = pretrained(transformers.AutoConfig, folder)
    classes = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    if type(config) not in classes:
        raise ValueError(f"model_type: {config.model_type}, which has no sequence classifier")
    return classes[type(config)]


def _model(transformers: Any, files: CheckpointFiles, dtype: str) -> Any:
    model = whole_model(
        _class_of(transformers, files.folder),
        files.folder,
        dtype=dtype,
        weights=files.folder,
        of="a trained sequence classifier",
        may_be_left=_UNUSED.search,
    )
    clone_weights(model)
    return model


def _most_tokens(model: Any, tokenizer: Any, wanted: int | None, files: CheckpointFiles) -> int:
    taken = [limit for limit in (_positions(model), int(tokenizer.model_max_length)) if 0 < limit < _NO_LIMIT]
    if wanted is not None and wanted <= min(taken, default=wanted):
        return wanted
    if wanted is not None or not taken:
        raise ConfigError(
            "this classifier does not take so many tokens"
            if taken
            else "this classifier does not say how many tokens it takes",
            where=files.folder,
            found=f"max_tokens: {wanted}",
            expected=f"at most {min(taken)}" if taken else "a number",
            hint="set `max_tokens` of the scorer",
        )
    return min(taken)


def _positions(model: Any) -> int:
    """Return how many tokens the model has positions for; 0 where it does not say."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and hasattr(module, "num_embeddings"):
            # RoBERTa counts positions from behind the padding index.
            skipped = 0 if module.padding_idx is None else int(module.padding_idx) + 1
            return int(module.num_embeddings) - skipped
    return int(getattr(model.config, "max_position_embeddings", 0) or 0)


# The scorer.

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


def _architecture(transformers: Any, folder: Path) -> torch.nn.Module:
    """Return the classifier of a folder, built without numbers."""
    return architecture_of(_class_of(transformers, folder), folder)


class ClassifierScorer:
    """Scores texts by a sequence classifier: `plumbline.scorers.scorer.Scorer`.

    A score is the sigmoid of the label's output, or its softmax where one of the labels holds. Texts that are longer
    than the model takes are cut at their end, `truncated`. The empty text is scored as it is: as its special tokens
    alone. On a CPU, in float32, a score moves by less than 1e-5 with the texts that share its batch. In 16 bits scores
    are rounded: those of a random RoBERTa of base size moved by 0.0005 on average in float16, 0.006 in bfloat16.

    Parameters
    ----------
    files : CheckpointFiles
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

    def __init__(self, files: CheckpointFiles, settings: ClassifierSettings, placement: Placement) -> None:
        ready_libraries()
        import transformers

        self._dtype = _dtype(settings.dtype, placement)
        expected = "a sequence classifier of one of transformers' own architectures, with its tokenizer"
        with loading("transformers could not load this classifier", where=files.folder, expected=expected):
            build = partial(_architecture, transformers, files.folder)
            require_sizes(files.folder, files.weights, build, configuration=TRANSFORMERS_CONFIG)
            model = _model(transformers, files, self._dtype)
            tokenizer = pretrained(transformers.AutoTokenizer, files.folder)
        if tokenizer.pad_token_id is None:
            raise CheckpointError(
                "this classifier's tokenizer has no token to pad with, so that texts cannot share a batch",
                where=files.folder,
                expected="a pad_token in tokenizer_config.json",
            )
        # A text's positions must not depend on the others, and what is read is its beginning.
        tokenizer.padding_side = tokenizer.truncation_side = "right"
        self._tokenizer: Any = tokenizer
        self._pad = int(tokenizer.pad_token_id)
        self._model: Any = model.to(placement.device).eval().requires_grad_(False)
        self._most_tokens = _most_tokens(model, tokenizer, settings.max_tokens, files)
        labels = [str(model.config.id2label[i]) for i in range(len(model.config.id2label))]
        self._positions = label_positions(labels, settings.labels, where=files.folder)
        self._activation: Activation = (
            activation_of(read_configuration(files.folder / TRANSFORMERS_CONFIG), len(labels), where=files.folder)
            if settings.activation == "auto"
            else settings.activation
        )
        self._batch_tokens = settings.batch_tokens or (CPU_TOKENS if placement.device == "cpu" else GPU_TOKENS)
        asked = loading("this classifier cannot be asked anything", where=files.folder, expected=expected)
        with asked, modest_run(files.folder, placement.device):
            self._scores_of([tokenizer(["a kind person"])["input_ids"][0] or [self._pad]])
        self._forward = OomRetry(self._scores_of)
        self.attributes: tuple[str, ...] = tuple(self._positions)
        self.without = tuple(name for name in SCORED_ATTRIBUTES if name not in self._positions)
        self.version = _version(files)
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
            "max_tokens": self._most_tokens,
            "dtype": self._dtype,
            "device": placement.device_kind,
            "attention": str(self._model.config._attn_implementation),
            "libraries": {
                name: library_version(name).split("+")[0] for name in ("torch", "transformers", "tokenizers")
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
        most = self._most_tokens
        ids = self._tokenizer(list(texts), verbose=False)["input_ids"]
        truncated = [len(row) > most for row in ids]
        long = [i for i, is_long in enumerate(truncated) if is_long]
        if long:
            cut = self._tokenizer([texts[i] for i in long], truncation=True, max_length=most)["input_ids"]
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
        from torch.nn.utils.rnn import pad_sequence

        rows = [torch.tensor(tokens) for tokens in ids]
        tokens = pad_sequence(rows, batch_first=True, padding_value=self._pad)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        device = self._model.device
        with torch.inference_mode():
            logits = self._model(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
            wide = logits.double()
            scores = wide.sigmoid() if self._activation == "sigmoid" else wide.softmax(dim=-1)
            chosen = scores[:, list(self._positions.values())]
        return np.asarray(chosen.cpu().numpy(), dtype=np.float64)


class _Tokens(NamedTuple):
    ids: list[list[int]]
    truncated: list[bool]


def _dtype(wanted: str, placement: Placement) -> str:
    """Return the number type of the weights; float16 has eight times the precision of bfloat16."""
    if placement.device == "cpu":
        return "float32"
    if wanted == "auto":
        return "float32" if placement.dtype == "float32" else "float16"
    return wanted
