"""The tiny LLaVA and the tiny language model, and how they are put on disk for transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.loading import declare_missing_operators
from plumbline.world.architectures.pretrained import END, NORMALISATION, PAD, SQUARE, START, WEIGHTS_FILE, write_config
from plumbline.world.faces import SIZE

if TYPE_CHECKING:
    import torch

IMAGE = "<image>"
SPECIAL = (PAD, START, END, IMAGE)
PATCH = 16
IMAGE_TOKENS = (SIZE // PATCH) ** 2

_MAX_VOCABULARY = 1024
# transformers' own 0.02 is for widths of thousands: with it these models learn half as fast.
_FIRST_WEIGHTS = 0.08
# Room for the longest prompt and the 512 new tokens of the study.
_LONGEST = 1024

_IMAGES_FIRST = (
    "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>\n' }}{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] + ' ' }}{% endfor %}"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'] | upper + ': ' }}{% endif %}"
    "{% if message['content'] is string %}{{ message['content'] + ' ' }}{% else %}"
    + _IMAGES_FIRST
    + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
"""As LLaVA-1.5 and Vicuna: `USER: <image>\\n{prompt} ASSISTANT:`; the language model's has no image in it."""


@dataclass(frozen=True)
class Architecture:
    """Dimensions of a model.

    Attributes
    ----------
    width, layers, hidden, heads : int
        Of the Llama: hidden state, layers, inner width of its feed-forward part, attention heads.
    vision_width, vision_layers : int
        Of the CLIP vision tower, patch 16; 0 for a model without eyes.
    """

    width: int = 128
    layers: int = 3
    hidden: int = 384
    heads: int = 4
    vision_width: int = 128
    vision_layers: int = 3


def chat(prompt: str, *, sees: bool) -> str:
    """Return what a model reads before it answers, as its chat template renders it."""
    return f"USER: {IMAGE + chr(10) if sees else ''}{prompt} ASSISTANT:"


def write_tokenizer(folder: Path, texts: Sequence[str]) -> Any:
    """Train a byte-level tokenizer that keeps case, write it, and return it as transformers reads it.

    Parameters
    ----------
    folder : pathlib.Path
        Gets `tokenizer.json`, `tokenizer_config.json` and the chat template.
    texts : sequence of str
        What the merges are learnt from.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # An answer begins with the space behind `ASSISTANT:`, which is no part of it.
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, tokenizer.token_to_id(START))]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens={"image_token": IMAGE},
        padding_side="left",
        model_max_length=_LONGEST,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    return fast


def write_untrained(folder: Path, architecture: Architecture, texts: Sequence[str]) -> Any:
    """Write configuration, tokenizer, processor and generation settings of a model that has no weights yet.

    Parameters
    ----------
    folder : pathlib.Path
        Made if it does not exist.
    architecture : Architecture
        Its dimensions.
    texts : sequence of str
        What the tokenizer is trained on.

    Returns
    -------
    PreTrainedTokenizerFast
    """
    declare_missing_operators()
    from transformers import GenerationConfig

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder, texts)
    sees = architecture.vision_width > 0
    config = _llava_config(architecture, tokenizer) if sees else _llama_config(architecture, tokenizer)
    write_config(folder, config, "LlavaForConditionalGeneration" if sees else "LlamaForCausalLM")
    if sees:
        _write_processor(folder, tokenizer)
    GenerationConfig(**_token_ids(tokenizer)).save_pretrained(folder)
    return tokenizer


def save_weights(model: torch.nn.Module, folder: Path) -> None:
    """Write a model's weights in half precision; the output layer is the embedding and is not written twice."""
    import torch
    from safetensors.torch import save_file

    weights = {
        name: value.detach().to(torch.float16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def _token_ids(tokenizer: Any) -> dict[str, Any]:
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _llama_config(architecture: Architecture, tokenizer: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=architecture.width,
        intermediate_size=architecture.hidden,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.heads,
        max_position_embeddings=_LONGEST,
        initializer_range=_FIRST_WEIGHTS,
        tie_word_embeddings=True,
        **_token_ids(tokenizer),
    )


def _llava_config(architecture: Architecture, tokenizer: Any) -> Any:
    from transformers import CLIPVisionConfig, LlavaConfig

    vision = CLIPVisionConfig(
        hidden_size=architecture.vision_width,
        intermediate_size=3 * architecture.vision_width,
        num_hidden_layers=architecture.vision_layers,
        num_attention_heads=4,
        image_size=SIZE,
        patch_size=PATCH,
        projection_dim=architecture.vision_width,
    )
    return LlavaConfig(
        vision_config=vision,
        text_config=_llama_config(architecture, tokenizer),
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=IMAGE_TOKENS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
        **_token_ids(tokenizer),
    )


def _write_processor(folder: Path, tokenizer: Any) -> None:
    from transformers import LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    settings: dict[str, Any] = {**NORMALISATION, "size": SQUARE, "crop_size": SQUARE, "do_center_crop": False}
    images = CLIPImageProcessorPil(**settings)
    LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
