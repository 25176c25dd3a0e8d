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
from plumbline.errors import GenerationError, ImageRejected
from plumbline.generators.backend import Answer, Asked, Decoding
from plumbline.generators.folders import GeneratorFiles
from plumbline.generators.loaded_model import identity_of, load_inputs, load_model, stop_tokens
from plumbline.generators.sampling import RowSeeded
from plumbline.generators.thinking import Thoughts
from plumbline.images.decoding import decode, read_recorded_image

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

    from plumbline.generators.sampling import Read, Written


def recorded_image(path: Path | None, image_id: str) -> Image:
    """Return an image as it was recorded.

    Raises
    ------
    GenerationError
        If a subject has no image, or it cannot be read, or is no longer the one that was recorded.
    """
    if path is None:
        raise GenerationError("this model looks at images, and a subject has none", where=image_id)
    try:
        return decode(read_recorded_image(path, image_id))
    except ImageRejected as error:
        raise error.restated(GenerationError, "an image cannot be read: ", where=path) from error


ROWS_ON_CPU, MOST_ROWS = 32, 256
"""Answers that are written at once: on a CPU so many, on a GPU what fits, up to so many. Fewer where memory runs out.
A batch's size moves the last bits of its logits, and once in a long while a token."""

_ROOM_TO_USE = 0.4
"""Share of free memory that the cache of a batch may take: rows that are chosen or grow are copied."""

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
    rows_at_once : int or None
        Answers that are written at once. None until the first prompt that is read on a GPU shows how many fit. Halved,
        for the rest of this backend's life, when memory runs out.
    own_decoding, switches : dict
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
        inputs = load_inputs(files)
        self._tokenizer, self._prompts, self._images = inputs
        self._model = load_model(files, placement)
        self._stops = stop_tokens(self._model, self._tokenizer)
        self.identity = identity_of(files, placement, inputs, stops=self._stops)
        self.device = placement.device
        self.sees = files.sees
        self.at_once = SUBJECTS_AT_ONCE[kind]
        self.rows_at_once: int | None = ROWS_ON_CPU if kind == "cpu" else None
        self._images_at_once: int | None = self.at_once
        self.own_decoding, self.switches = files.own_decoding, files.switches
        self.parameters = sum(p.numel() for p in self._model.parameters())
        self._source = files.weights_sha256
        self._thoughts = Thoughts(self._tokenizer, self._prompts.example())

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
            if batches.rows is None:
                batches.rows = self._rows_that_fit(seen, decoding)
            for answers in batches.parts(seen.rows, seen, decoding):
                self._images_at_once, self.rows_at_once = looks.rows, batches.rows
                yield from enumerate(answers, start=done)
                done += len(answers)

    # What a family does.

    def _look(self, paths: Mapping[str, Path | None]) -> Any:
        """Return all that can be computed of images, or subjects without one, before a prompt is known.

        Parameters
        ----------
        paths : mapping
            sha256 of each file to where it is.
        """
        raise NotImplementedError

    def _read(self, seen: Any, pairs: Sequence[tuple[int, str]]) -> Read:
        """Read prompts, each with the index of its image; different ones only."""
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

    def _seen(self, subjects: Sequence[Sequence[Asked]]) -> Seen:
        """Run the vision part on the images of some subjects' rows."""
        rows = [row for subject in subjects for row in subject]
        paths = {row.subject.image_id: row.subject.path for row in rows}
        if not self.sees and any(path is not None for path in paths.values()):
            raise GenerationError(
                "a language model was given an image",
                expected="words in place of the image",
                hint="name it as the `base_llm` of the model that was built on it",
            )
        with self._inference():
            state = self._look(paths)
        return Seen(rows, {image_id: place for place, image_id in enumerate(paths)}, state)

    def _pixels(self, paths: Mapping[str, Path | None]) -> torch.Tensor:
        """Return (n, 3, h, w) pixels on the device, as the checkpoint's own preprocessing gives them."""
        import torch

        assert self._images is not None
        prepared = [self._images.prepare(recorded_image(path, image_id)) for image_id, path in paths.items()]
        pixels = self._images.normalisation(torch.stack(prepared), device=self.device)
        return pixels.to(self._model.dtype)

    def _rows_that_fit(self, seen: Seen, decoding: Decoding) -> int:
        """Return how many answers the free memory has room for, by what the longest prompt takes: a power of two."""
        longest = max(seen.rows, key=lambda row: len(row.question.text))
        with self._inference():
            cached, tokens = self._cached(seen, longest)
        bytes_a_row = cached / tokens * (tokens + decoding.max_new_tokens)
        rows = int(_ROOM_TO_USE * free_memory(self.device) / bytes_a_row)
        return 1 << (min(max(rows, 1), MOST_ROWS).bit_length() - 1)

    def _cached(self, seen: Seen, row: Asked) -> tuple[int, int]:
        """Return the bytes of the cache of a prompt that was read, and its tokens."""
        from plumbline.generators.sampling import cache_bytes

        read = self._read(seen.state, [seen.pair(row)])
        return cache_bytes(read.cache), read.mask.shape[1]

    def _batch(self, asked: Sequence[Asked], seen: Seen, decoding: Decoding) -> list[Answer]:
        import torch

        from plumbline.generators.sampling import write_answers

        # Seeds of one prompt differ only in what is drawn, so it is read once for all of them.
        pairs: dict[tuple[int, str], int] = {}
        for row in asked:
            pairs.setdefault(seen.pair(row), len(pairs))
        rows = [pairs[seen.pair(row)] for row in asked]
        with self._inference():
            read = self._read(seen.state, list(pairs))
            for (_, prompt), length in zip(pairs, read.mask.sum(-1).tolist(), strict=True):
                self._require_context(prompt, length, decoding.max_new_tokens)
            read = read.rows(torch.tensor(rows, device=self.device))
            lengths = read.mask.sum(-1).tolist()
            sampler = RowSeeded([row.key for row in asked], decoding, self.device)
            written = write_answers(
                self._language_model, read, sampler, stops=self._stops, longest=decoding.max_new_tokens
            )
        return [self._answer(answer, length) for answer, length in zip(written, lengths, strict=True)]

    def _answer(self, written: Written, prompt_tokens: int) -> Answer:
        thinking = self._thoughts.apart(written.tokens)
        text = self._tokenizer.decode(thinking.answer, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Answer(
            text=text.strip(),
            finish_reason="stop" if written.stopped else "length",
            prompt_tokens=prompt_tokens,
            new_tokens=len(written.tokens),
            source=self._source,
            thinking=thinking.text,
            thinking_tokens=len(written.tokens) - len(thinking.answer),
        )

    def _require_context(self, prompt: str, tokens: int, new_tokens: int = 0) -> None:
        """Refuse a prompt that leaves no room for its answer: the model was never trained on such positions.

        Called without new tokens before the model reads a prompt, which takes memory of the square of its length.
        """
        limit = self._context
        if tokens + new_tokens > limit:
            raise GenerationError(
                "a prompt and its answer are longer than the model's context",
                where=prompt[:200],
                found=f"{tokens} tokens" + (f" and up to {new_tokens} new ones" if new_tokens else ""),
                expected=f"at most {limit}",
                hint="lower the most new tokens in the audit file" if new_tokens else "look at its chat template",
            )

    @property
    def _context(self) -> int:
        """Return the longest row in tokens."""
        return int(self._language_model.config.get_text_config().max_position_embeddings)


def free_memory(device: str) -> int:
    """Return the bytes that are free on a GPU."""
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return free


class Seen(NamedTuple):
    """Rows, where the image of each is in what was computed of all, and that."""

    rows: list[Asked]
    places: dict[str, int]
    state: Any

    def pair(self, row: Asked) -> tuple[int, str]:
        """Return the place of a row's image, and its prompt."""
        return self.places[row.subject.image_id], row.question.text


# --- Base language models, without vision, of LVLMs: Vicuna, Mistral, Gemma.


class LanguageModelBackend(TransformersBackend):
    """Reads a prompt once for all of its seeds; what prompts have in common is short and is read with each.

    See TransformersBackend for parameters and errors.
    """

    def _look(self, paths: Mapping[str, Path | None]) -> None:
        """Nothing is seen."""

    def _read(self, seen: Any, pairs: Sequence[tuple[int, str]]) -> Read:
        from plumbline.generators.sampling import read_prompts

        # Descriptions of many images are the same words: they are read once.
        texts = list(dict.fromkeys(text for _, text in pairs))
        tokens = [self._prompts.tokens(text) for text in texts]
        for text, each in zip(texts, tokens):
            self._require_context(text, len(each))
        read = read_prompts(self._model, [self._embedded(each) for each in tokens])
        if len(texts) == len(pairs):
            return read
        import torch

        return read.rows(torch.tensor([texts.index(text) for _, text in pairs], device=self.device))
