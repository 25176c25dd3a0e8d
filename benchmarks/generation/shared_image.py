"""Answers of a Qwen3-VL about large images, which are most of what it reads, against `generate` row by row.

The model has random weights, and each image 576 tokens after the vision tower merged four patches into one. The peer
gets the inputs of the checkpoint's own processor and draws with the rows' own numbers, so that the texts must be the
same.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.generation.checkpoint import asked_rows, compared, drawn, trained_tokenizer
from benchmarks.statistics.contest import Peer, Row, timed
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.generators.backend import Asked, Decoding
from plumbline.generators.folders import generator_files, load_backend
from plumbline.generators.sampling import OwnDraws, RowSeeded
from plumbline.images.decoding import decode

SIDE, PATCH, MERGE = 768, 16, 2
IMAGE_TOKENS = (SIDE // PATCH // MERGE) ** 2
SEEDS, IMAGES = 3, 2
DECODING = Decoding(max_new_tokens=20)
BAR = 3.0

_TOKENS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def run() -> Iterator[Row]:
    """Give one row: all answers about some images."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "model")
        files = generator_files("benchmark", "local-dir:model", project=folder, fetched=folder)
        backend: Any = load_backend(files, Placement())
        asked = asked_rows(folder, backend.identity, DECODING, seeds=SEEDS, sides=[SIDE] * IMAGES)
        list(backend.answers(asked[:1], Decoding(max_new_tokens=2)))
        seconds, ours = timed(lambda: [answer.text for _, answer in backend.answers(asked, DECODING)], repeats=2)
        each, theirs = timed(lambda: [_answer(backend, row) for row in asked])
    yield Row(
        f"Qwen3-VL, {IMAGES} images x 5 prompts x {SEEDS} seeds, {IMAGE_TOKENS} image tokens, "
        f"{DECODING.max_new_tokens} new ones, {backend.parameters / 1e6:.1f} M parameters",
        seconds,
        [Peer("generate, row by row", each, *compared(ours, theirs), reached=2 * BAR)],
    )


def _answer(backend: Any, row: Asked) -> str:
    """Return the text of one row as transformers' `generate` writes it."""
    from transformers import LogitsProcessorList

    assert row.subject.path is not None
    inputs = backend._prompts.inputs(decode(row.subject.path), row.question.text)
    length = inputs["input_ids"].shape[1]
    draws = OwnDraws(RowSeeded([row.key], DECODING, "cpu"), length)
    with torch.inference_mode():
        out = backend._model.generate(
            **inputs, do_sample=False, max_new_tokens=DECODING.max_new_tokens,
            logits_processor=LogitsProcessorList([draws]),
        )  # fmt: skip
    return str(backend._tokenizer.decode(out[0, length:], skip_special_tokens=True).strip())


def _write(folder: Path) -> None:
    declare_missing_operators()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tokenizer = trained_tokenizer(_TOKENS)
    token = tokenizer.convert_tokens_to_ids
    never = token("<never>")
    text = {
        "hidden_size": 320, "intermediate_size": 864, "num_hidden_layers": 6, "num_attention_heads": 8, "head_dim": 40,
        "num_key_value_heads": 8, "vocab_size": len(tokenizer), "max_position_embeddings": 4096, "pad_token_id": 0,
        "eos_token_id": never,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 6, 6]},
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 128, "intermediate_size": 512, "num_heads": 4, "patch_size": PATCH,
        "spatial_merge_size": MERGE, "out_hidden_size": 320, "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [0],
    }  # fmt: skip
    config = transformers.Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=token("<|image_pad|>"),
        video_token_id=token("<|video_pad|>"), vision_start_token_id=token("<|vision_start|>"),
        vision_end_token_id=token("<|vision_end|>"),
    )  # fmt: skip
    model = drawn(transformers.Qwen3VLForConditionalGeneration, config)
    with torch.no_grad():
        # Of logits that scatter around 0, one of 0 is not among the 50 largest.
        model.lm_head.weight[never] = 0
    model.generation_config = transformers.GenerationConfig(eos_token_id=never, pad_token_id=0)
    model.save_pretrained(folder)
    sizes = {"shortest_edge": SIDE * SIDE, "longest_edge": SIDE * SIDE}
    images = transformers.Qwen2VLImageProcessorPil(patch_size=PATCH, merge_size=MERGE, size=sizes)
    videos = transformers.Qwen3VLVideoProcessor(patch_size=PATCH)
    transformers.Qwen3VLProcessor(images, tokenizer, videos, chat_template=_TEMPLATE).save_pretrained(folder)
