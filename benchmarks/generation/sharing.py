"""Answers about two images: what is shared against transformers' `generate`, row by row and as one padded batch.

The proportions are LLaVA-1.5's: 576 image tokens, 5 prompts x 3 seeds an image, 100 new tokens an answer; the model
has about 10 million parameters, so that a CPU can run it. It is written with random weights, and its only end of a
text is a token that is never drawn, so that every answer is 100 tokens long and all ways do the same work. Peers draw
with the same numbers, so that the texts must be the same.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.generation.checkpoint import IMAGE_TOKENS, SIDE, asked_rows, compared, write_checkpoint
from benchmarks.statistics.contest import Peer, Row, timed
from plumbline.checkpoints.device import Placement
from plumbline.generators.backend import Asked, Decoding
from plumbline.generators.folders import generator_files, load_backend
from plumbline.generators.sampling import OwnDraws, RowSeeded
from plumbline.images.decoding import decode

SEEDS, IMAGES = 3, 2
DECODING = Decoding(max_new_tokens=100)
BAR_EACH, BAR_BATCH = 3.0, 1.2


def run() -> Iterator[Row]:
    """Give one row: all answers about some images."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_checkpoint(folder / "model")
        backend = load_backend(
            generator_files("benchmark", "local-dir:model", project=folder, fetched=folder), Placement()
        )
        asked = asked_rows(folder, backend.identity, DECODING, seeds=SEEDS, sides=[SIDE] * IMAGES)
        peer = _Peer(backend)
        # Once without counting, so that all are warm.
        list(backend.answers(asked[:1], Decoding(max_new_tokens=2)))
        seconds, ours = timed(lambda: [answer.text for _, answer in backend.answers(asked, DECODING)], repeats=2)
        each, theirs = timed(lambda: [text for row in asked for text in peer.answers([row])])
        batch, batched = timed(lambda: peer.answers(asked), repeats=2)
    parameters = f"{backend.parameters / 1e6:.1f} M parameters"
    yield Row(
        f"{IMAGES} images x 5 prompts x {SEEDS} seeds, {IMAGE_TOKENS} image tokens, 100 new ones, {parameters}",
        seconds,
        [
            Peer("generate, row by row", each, *compared(ours, theirs), reached=2 * BAR_EACH),
            Peer("generate, the same batch, nothing shared", batch, *compared(ours, batched), reached=2 * BAR_BATCH),
        ],
    )  # fmt: skip


class _Peer:
    """transformers' `generate` on whole prompts, each with its image, padded on the left."""

    def __init__(self, backend: Any) -> None:
        self._backend, self._model, self._tokenizer = backend, backend._model, backend._tokenizer

    @torch.inference_mode()
    def answers(self, rows: Sequence[Asked]) -> list[str]:
        """Return the texts of rows in one batch."""
        from transformers import LogitsProcessorList

        image = self._tokenizer.convert_tokens_to_ids("<image>")
        prompts = [self._backend._prompts.around_image(row.question.text, image) for row in rows]
        ids = [head + [image] * IMAGE_TOKENS + tail for head, tail in prompts]
        width, pad = max(map(len, ids)), self._tokenizer.pad_token_id
        padded = torch.tensor([[pad] * (width - len(row)) + row for row in ids])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
        images = [self._backend._images.prepare(decode(row.subject.path)) for row in rows]
        pixels = self._backend._images.normalisation(torch.stack(images), device="cpu")
        draws = OwnDraws(RowSeeded([row.key for row in rows], DECODING, "cpu"), width)
        out = self._model.generate(
            input_ids=padded, attention_mask=mask, pixel_values=pixels, do_sample=False,
            max_new_tokens=DECODING.max_new_tokens, logits_processor=LogitsProcessorList([draws]),
        )  # fmt: skip
        return [self._tokenizer.decode(row, skip_special_tokens=True).strip() for row in out[:, width:]]
