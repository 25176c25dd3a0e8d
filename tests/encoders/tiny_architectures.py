"""Tiny checkpoints of the real architectures, with random weights of a size that makes every layer matter.

`BUILDERS[name](folder, seed=...)` writes one as its library writes it: configuration, processor, tokenizer and
safetensors. Texts of any kind can be read, since the tokenizers know every byte.
"""

import json

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from plumbline.checkpoints.loading import declare_missing_operators

SIZE = 32
TEXTS = [
    "a photo of a thief", "a photo of a savior", "an individual", "a man", "an image of a woman",
    "Cropped face photo of a trustworthy person.",
]  # fmt: skip
VOCABULARY = 340
_CLIP_PIXELS = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "image_size": SIZE}


def write_open_clip(folder, *, seed=3):
    """CLIP as open_clip ships it, with the tokenizer that open_clip brings along."""
    declare_missing_operators()
    import open_clip
    from safetensors.torch import save_file

    vision = {"image_size": SIZE, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16}
    text = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1}
    config = {
        "model_cfg": {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text},
        "preprocess_cfg": {"mean": [0.5, 0.45, 0.4], "std": [0.3, 0.25, 0.2]},
    }
    model = _randomised(lambda: open_clip.CLIP(**config["model_cfg"]), seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    weights = {k: v.contiguous() for k, v in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")


def write_clip(folder, *, seed=3, kind="CLIP"):
    """CLIP, or another of its build such as `MetaClip2`."""
    transformers = _transformers()
    tokenizer = _tokenizer(last=("<start>", "<end>"), template="<start> $A <end>", pad="<end>", longest=77)
    text = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    text |= {"vocab_size": len(tokenizer), "max_position_embeddings": 77}
    text |= {"bos_token_id": len(tokenizer) - 2, "eos_token_id": len(tokenizer) - 1}
    vision = {**_VISION, "patch_size": 8, "num_hidden_layers": 2}
    configured, model = (getattr(transformers, f"{kind}{part}") for part in ("Config", "Model"))
    config = configured(text_config=text, vision_config=vision, projection_dim=24)
    images = transformers.CLIPImageProcessorPil(**_CLIP_PIXELS)
    _save(folder, model, config, transformers.CLIPProcessor(images, tokenizer), seed)


def write_align(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _tokenizer(first=("[PAD]", "[CLS]", "[SEP]"), template="[CLS] $A [SEP]", pad="[PAD]", longest=128)
    vision = {
        "image_size": SIZE, "width_coefficient": 1.0, "depth_coefficient": 1.0, "depth_divisor": 8, "hidden_dim": 24,
        "kernel_sizes": [3, 5], "in_channels": [32, 16], "out_channels": [16, 24], "strides": [1, 2],
        "num_block_repeats": [1, 2], "expand_ratios": [1, 3],
    }  # fmt: skip
    text = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    text |= {"vocab_size": len(tokenizer), "max_position_embeddings": 128}
    config = transformers.AlignConfig(
        text_config=text, vision_config=vision, projection_dim=24, temperature_init_value=0.4
    )
    images = transformers.EfficientNetImageProcessorPil(
        size={"height": 40, "width": 40}, crop_size={"height": SIZE, "width": SIZE}, do_center_crop=True,
        rescale_factor=1 / 127.5, rescale_offset=True, image_mean=[0.5] * 3, image_std=[0.5, 0.4, 0.6],
        include_top=True,
    )  # fmt: skip
    _save(folder, transformers.AlignModel, config, transformers.AlignProcessor(images, tokenizer), seed)


def write_bridgetower(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _tokenizer(first=("<s>", "<pad>", "</s>"), template="<s> $A </s>", pad="<pad>", longest=60)
    width = {"hidden_size": 64, "num_hidden_layers": 4}
    text = {**width, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": len(tokenizer)}
    config = transformers.BridgeTowerConfig(
        text_config={**text, "max_position_embeddings": 62},
        vision_config={**width, "patch_size": 8, "image_size": SIZE, "remove_last_layer": False},
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
    )  # fmt: skip
    images = transformers.BridgeTowerImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size={"shortest_edge": SIZE}, size_divisor=8
    )
    processor = transformers.BridgeTowerProcessor(images, tokenizer)
    _save(folder, transformers.BridgeTowerForImageAndTextRetrieval, config, processor, seed)


def write_owlv2(folder, *, seed=3):
    _write_owl(folder, "Owlv2", seed)


def write_owlvit(folder, *, seed=3):
    _write_owl(folder, "OwlViT", seed)


BUILDERS = {
    "open_clip": write_open_clip,
    "clip": write_clip,
    "align": write_align,
    "bridgetower": write_bridgetower,
    "owlv2": write_owlv2,
    "owlvit": write_owlvit,
}


def _transformers():
    declare_missing_operators()
    import transformers

    return transformers


def _write_owl(folder, kind, seed):
    processing, images, configured, model = (
        getattr(_transformers(), f"{kind}{part}")
        for part in ("Processor", "ImageProcessorPil", "Config", "ForObjectDetection")
    )
    processor = processing(images(size={"height": SIZE, "width": SIZE}), _owl_tokenizer())
    _save(folder, model, configured(**_owl_towers(processor.tokenizer)), processor, seed)


def _owl_tokenizer():
    # Token 0 is the padding, as in the released checkpoints, where it is the letter "!".
    return _tokenizer(first=("!",), last=("<start>", "<end>"), template="<start> $A <end>", pad="!", longest=16)


def _owl_towers(tokenizer):
    ends = {"bos_token_id": len(tokenizer) - 2, "eos_token_id": len(tokenizer) - 1}
    text = {"hidden_size": 24, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}
    return {
        "text_config": {**text, "vocab_size": len(tokenizer), "max_position_embeddings": 16, **ends},
        "vision_config": {**_VISION, "patch_size": 8, "num_hidden_layers": 2},
        "projection_dim": 24,
    }


def _tokenizer(*, template, pad, longest, first=(), last=()):
    """A byte-level BPE with special tokens at the beginning or the end of the vocabulary."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(first),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.add_special_tokens(list(last))
    start, _, end = template.split()
    ids = [(token, tokenizer.token_to_id(token)) for token in (start, end)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=start, eos_token=end, pad_token=pad, model_max_length=longest
    )


def _save(folder, model_class, config, processor, seed):
    _randomised(lambda: model_class(config), seed).save_pretrained(folder)
    processor.save_pretrained(folder)


def _randomised(build, seed):
    """Build a model whose every weight is drawn: fresh ones of these libraries are near zero, or exactly 0 or 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim >= 2:
                    a_table = parameter.ndim == 2 and "embedding" in name
                    fan_in = 1 if a_table else parameter[0].numel()
                    parameter.normal_(std=fan_in**-0.5)
                elif parameter.ndim == 1:
                    parameter.normal_(mean=1.0 if name.endswith("weight") else 0.0, std=0.2)
            for name, buffer in model.named_buffers():
                if name.endswith("running_mean"):
                    buffer.normal_(std=0.2)
                elif name.endswith("running_var"):
                    buffer.uniform_(0.5, 1.5)
    return model.eval()
