"""A LLaVA with LLaVA-1.5's image tokens and about ten million random weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from plumbline.catalog.prompts import prompt_ids, render
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.digests import digest_file
from plumbline.generators.backend import Asked, Decoding, Question, Subject, row_key

IMAGE_TOKENS = 576
SIDE, PATCH = 336, 14
_VOCABULARY_TEXT = ["Describe this image in as much detail as possible.", "What is this person like?"]


def write_checkpoint(folder: Path) -> None:
    """Write a LLaVA with CLIP at 336 pixels, whose answers never end by themselves."""
    declare_missing_operators()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    tokenizer = trained_tokenizer()
    tokenizer.save_pretrained(folder)
    never = tokenizer.convert_tokens_to_ids("<never>")
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(
            hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
            image_size=SIDE, patch_size=PATCH,
        ),
        text_config=transformers.LlamaConfig(
            hidden_size=320, intermediate_size=864, num_hidden_layers=7, num_attention_heads=8,
            vocab_size=len(tokenizer), max_position_embeddings=2048, eos_token_id=never, pad_token_id=0,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    model = drawn(transformers.LlavaForConditionalGeneration, config)
    with torch.no_grad():
        # Of logits that scatter around 0, one of 0 is not among the 50 largest.
        model.lm_head.weight[never] = 0
    model.generation_config = transformers.GenerationConfig(eos_token_id=never, pad_token_id=0)
    model.save_pretrained(folder)
    transformers.CLIPImageProcessorPil(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}
    ).save_pretrained(folder)


def trained_tokenizer(special: Sequence[str] = ()) -> Any:
    """Train a byte-level tokenizer whose end of text no answer reaches, with further special tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<pad>", "<start>", "<end>", "<image>", "<never>", *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_VOCABULARY_TEXT, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("<start>", "<end>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<start> $A <end>", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<start>", eos_token="<never>", pad_token="<pad>", model_max_length=2048
    )


def drawn(model_class: type, config: object) -> torch.nn.Module:
    """Draw weights of a size that makes every layer matter, and leave the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(std=(1 if "embed" in name else parameter[0].numel()) ** -0.5)
    return model.eval()


def asked_rows(folder: Path, identity: str, decoding: Decoding, *, seeds: int, sides: Sequence[int]) -> list[Asked]:
    """Write an image of noise a side, and return the rows that ask each the main prompts with every seed."""
    rows = []
    for number, side in enumerate(sides):
        path = folder / f"{number}.png"
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)
        subject = Subject(digest_file(path), path)
        for prompt in prompt_ids("main"):
            for seed in range(seeds):
                question = Question(prompt, "none", render(prompt, occupation="chef"), seed)
                rows.append(Asked(subject, question, row_key(identity, subject, question, decoding)))
    return rows


def compared(ours: Sequence[str], theirs: Sequence[str]) -> tuple[bool, str]:
    """Return whether two ways wrote the same texts, and how many they did."""
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    return same == len(ours), f"{same} of {len(ours)} texts the same, to the letter"
