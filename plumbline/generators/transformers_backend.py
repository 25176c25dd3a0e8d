"""The engine of local models: batching, one vision pass per image, smaller batches after an out-of-memory error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plumbline.checkpoints.device import Placement
from plumbline.encoders.batching import OomRetry
from plumbline.encoders.torch_encoder import without_tf32
from plumbline.encoders.transformers_encoder import ImageProcessor
from plumbline.errors import GenerationError, ImageRejected
from plumbline.generators.backend import Answer, Asked, Decoding
from plumbline.generators.folders import GeneratorFiles
from plumbline.generators.loaded_model import identity_of, load_images, load_model, load_tokenizer, stop_tokens
from plumbline.generators.prompt_format import format_of
from plumbline.generators.sampling import RowSeeded
from plumbline.images.decoding import decode, read_recorded_image

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

    from plumbline.generators.sampling import Read


def pixels_of(paths: Mapping[str, Path | None], images: ImageProcessor, *, device: str) -> torch.Tensor:
    """Return (n, 3, h, w) float32 pixels on the device, as the checkpoint's own preprocessing gives them.

    Parameters
    ----------
    paths : mapping
        sha256 of each file to where it is.

    Raises
    ------
    GenerationError
        If a subject has no image, or it cannot be read, or is no longer the one that was recorded.
    """
    import torch

    prepared = torch.stack([images.prepare(_recorded(path, image)) for image, path in paths.items()])
    return images.normalisation(prepared, device=device)


def _recorded(path: Path | None, image_id: str) -> Image:
    if path is None:
        raise GenerationError("this model looks at images, and a subject has none", where=image_id)
    try:
        return decode(read_recorded_image(path, image_id))
    except ImageRejected as error:
        raise error.restated(GenerationError, "an image cannot be read: ", where=path) from error


ROWS_AT_ONCE = {"cpu": 32, "cuda": 64}
"""Answers that are written at once. Fixed and not measured: a batch's size moves the last bits of its logits, so that
a run that goes on elsewhere should have the same. Fewer where the device's memory is short."""

ALONE_BELOW = 20_000_000
"""Weights of a model that is tiny, see `TransformersBackend`."""

SUBJECTS_AT_ONCE = {"cpu": 4, "cuda": 16}


class TransformersBackend:
    """A model of transformers that answers: `plumbline.generators.backend.Backend`.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Attributes
    ----------
    rows_at_once : int
        Answers that are written at once. Halved, for the rest of this backend's life, when memory runs out.
    own_decoding : dict
        See `GeneratorFiles`.
    parameters : int
        Number of weights.

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, or its chat template takes no prompt.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        kind = placement.device_kind
        self._tokenizer = load_tokenizer(files)
        self._prompts = format_of(files, self._tokenizer)
        self._images = load_images(files) if files.sees else None
        self._model = load_model(files, placement)
        self._stops = stop_tokens(self._model, self._tokenizer)
        self.identity = identity_of(files, placement, prompts=self._prompts, images=self._images, stops=self._stops)
        self.device = placement.device
        self.sees = files.sees
        self.at_once = SUBJECTS_AT_ONCE[kind]
        self.rows_at_once: int | None = ROWS_AT_ONCE[kind]
        self._images_at_once: int | None = self.at_once
        self.own_decoding = files.own_decoding
        self.parameters = sum(p.numel() for p in self._model.parameters())
        self._source = files.weights_sha256

    def answers(self, asked: Sequence[Asked], decoding: Decoding) -> Iterator[tuple[int, Answer]]:
        """See `plumbline.generators.backend.Backend`.

        Raises
        ------
        GenerationError
            If an image cannot be read or is no longer the one that was recorded, a prompt and its answer are longer
            than the model's context, or the device has not the memory for a single row.
        """
        subjects = [list(rows) for _, rows in groupby(asked, key=lambda row: row.subject.image_id)]
        looks = OomRetry(self._seen, self._images_at_once, refusal=GenerationError)
        batches = OomRetry(self._batch, self.rows_at_once, refusal=GenerationError)
        done = 0
        for seen in looks.parts(subjects):
            for answers in batches.parts(seen.rows, seen, decoding):
                self._images_at_once, self.rows_at_once = looks.rows, batches.rows
                yield from enumerate(answers, start=done)
                done += len(answers)

    # What a family does.

    def _look(self, pixels: torch.Tensor | None, count: int) -> Any:
        """Return all that can be computed of `count` images, or subjects without one, before a prompt is known."""
        raise NotImplementedError

    def _read(self, seen: Any, pairs: Sequence[tuple[int, str]]) -> Read:
        """Read prompts, each with the index of its image; different ones only."""
        raise NotImplementedError

    def _prompt_length(self, text: str) -> int:
        """Return the tokens that the language model reads of a prompt, those of the image among them."""
        raise NotImplementedError

    @property
    def _language_model(self) -> Any:
        """Return the causal language model, which takes embeddings."""
        return self._model

    # What all do.

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Compute without gradients and TF32, and in one thread where a model is tiny.

        The products of a tiny one are too small to share among cores. On a busy machine threads that wait for each
        other at every product made such a model fifteen times slower.
        """
        import torch

        before = torch.get_num_threads()
        if self.device == "cpu" and self.parameters < ALONE_BELOW:
            torch.set_num_threads(1)
        try:
            with torch.inference_mode(), without_tf32():
                yield
        finally:
            torch.set_num_threads(before)

    def _embedded(self, ids: Sequence[int]) -> torch.Tensor:
        """Return the (n, d) input embeddings of tokens."""
        import torch

        tokens = torch.tensor(ids, dtype=torch.long, device=self.device)
        embedded: torch.Tensor = self._language_model.get_input_embeddings()(tokens)
        return embedded

    def _seen(self, subjects: Sequence[Sequence[Asked]]) -> _Seen:
        """Run the vision part on the images of some subjects' rows."""
        rows = [row for subject in subjects for row in subject]
        paths = {row.subject.image_id: row.subject.path for row in rows}
        if self._images is None and any(path is not None for path in paths.values()):
            raise GenerationError(
                "a language model was given an image",
                expected="words in place of the image",
                hint="name it as the `base_llm` of the model that was built on it",
            )
        with self._inference():
            pixels = None
            if self._images is not None:
                pixels = pixels_of(paths, self._images, device=self.device).to(self._model.dtype)
            state = self._look(pixels, len(paths))
        return _Seen(rows, {image_id: place for place, image_id in enumerate(paths)}, state)

    def _batch(self, asked: Sequence[Asked], seen: _Seen, decoding: Decoding) -> list[Answer]:
        import torch

        from plumbline.generators.sampling import write_answers

        self._require_room(asked, decoding)
        # Seeds of one prompt differ only in what is drawn, so it is read once for all of them.
        pairs: dict[tuple[int, str], int] = {}
        for row in asked:
            pairs.setdefault((seen.places[row.subject.image_id], row.question.text), len(pairs))
        rows = [pairs[seen.places[row.subject.image_id], row.question.text] for row in asked]
        with self._inference():
            read = self._read(seen.state, list(pairs)).rows(torch.tensor(rows, device=self.device))
            lengths = read.mask.sum(-1).tolist()
            sampler = RowSeeded([row.key for row in asked], decoding, self.device)
            written = write_answers(
                self._language_model, read, sampler, stops=self._stops, longest=decoding.max_new_tokens
            )
        return [
            Answer(
                text=self._tokenizer.decode(
                    answer.tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
                ).strip(),
                finish_reason="stop" if answer.stopped else "length",
                prompt_tokens=int(length),
                new_tokens=len(answer.tokens),
                source=self._source,
            )
            for answer, length in zip(written, lengths)
        ]  # fmt: skip

    def _require_room(self, asked: Sequence[Asked], decoding: Decoding) -> None:
        """Refuse a prompt that leaves no room for its answer: the model was never trained on such positions."""
        config = self._language_model.config.get_text_config()
        limits = [config.max_position_embeddings, getattr(config, "sliding_window", None)]
        limit = min(each for each in limits if each)
        for text in {row.question.text for row in asked}:
            tokens = self._prompt_length(text)
            if tokens + decoding.max_new_tokens > limit:
                raise GenerationError(
                    "a prompt and its answer are longer than the model's context",
                    where=text[:200],
                    found=f"{tokens} tokens and up to {decoding.max_new_tokens} new ones",
                    expected=f"at most {limit}",
                    hint="lower the most new tokens in the audit file",
                )


class _Seen(NamedTuple):
    """Rows, where the image of each is in what was computed of all, and that."""

    rows: list[Asked]
    places: dict[str, int]
    state: Any
