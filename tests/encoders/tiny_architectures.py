"""Tiny checkpoints of the real architectures, with random weights of a size that makes every layer matter.

`BUILDERS[name](folder, seed=...)` writes one as its library writes it: configuration, processor, tokenizer and
safetensors. Texts of any kind can be read, since the tokenizers know every byte.
"""

import json

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from plumbline.checkpoints.operators import declare_missing_operators

SIZE = 32
TEXTS = [
    "a photo of a thief", "a photo of a savior", "an individual", "a man", "an image of a woman",
    "Cropped face photo of a trustworthy person.",
]  # fmt: skip
VOCABULARY = 340
_CLIP_PIXELS = {"size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}}
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "image_size": SIZE}


_PATCHED = {**_VISION, "patch_size": 8, "num_hidden_layers": 2}
_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


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
    tokenizer = _clip_tokenizer()
    configured, model = (getattr(transformers, f"{kind}{part}") for part in ("Config", "Model"))
    config = configured(text_config=_clip_text(tokenizer), vision_config=_PATCHED, projection_dim=24)
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


def write_altclip(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _roberta_tokenizer()
    text = {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 92, "pad_token_id": 1}
    config = transformers.AltCLIPConfig(
        text_config={**text, "project_dim": 20}, vision_config=_PATCHED, projection_dim=24
    )
    processor = transformers.AltCLIPProcessor(transformers.CLIPImageProcessorPil(**_CLIP_PIXELS), tokenizer)
    _save(folder, transformers.AltCLIPModel, config, processor, seed)


def write_chinese_clip(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _bert_tokenizer()
    text = {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
    config = transformers.ChineseCLIPConfig(text_config=text, vision_config=_PATCHED, projection_dim=24)
    images = transformers.ChineseCLIPImageProcessorPil(size={"height": SIZE, "width": SIZE}, do_center_crop=False)
    _save(folder, transformers.ChineseCLIPModel, config, transformers.ChineseCLIPProcessor(images, tokenizer), seed)


def write_metaclip_2(folder, *, seed=3):
    write_clip(folder, seed=seed, kind="MetaClip2")


def write_flava(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _bert_tokenizer()
    text = {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
    config = transformers.FlavaConfig(
        text_config=text, image_config={**_PATCHED, "vocab_size": 20}, projection_dim=24, hidden_size=32,
        multimodal_config=_TOWER, image_codebook_config={"hidden_size": 8, "vocab_size": 20, "n_groups": 2},
    )  # fmt: skip
    square = {"height": SIZE, "width": SIZE}
    images = transformers.FlavaImageProcessorPil(size=square, crop_size=square)
    _save(folder, transformers.FlavaModel, config, transformers.FlavaProcessor(images, tokenizer), seed)


def write_siglip(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _sticky_tokenizer()
    config = transformers.SiglipConfig(text_config=_sticky_text(tokenizer), vision_config=_PATCHED)
    images = transformers.SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    _save(folder, transformers.SiglipModel, config, transformers.SiglipProcessor(images, tokenizer), seed)


def write_siglip2(folder, *, seed=3, patches=20):
    """SigLIP 2 NaFlex: images of any proportion."""
    transformers = _transformers()
    tokenizer = _siglip2_tokenizer()
    vision = {**_TOWER, "patch_size": 8, "num_patches": 16}
    config = transformers.Siglip2Config(text_config=_sticky_text(tokenizer), vision_config=vision)
    images = transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=patches)
    _save(folder, transformers.Siglip2Model, config, transformers.Siglip2Processor(images, tokenizer), seed)


def write_tipsv2(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _sticky_tokenizer()
    vision = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "image_size": SIZE, "patch_size": 8}
    text = {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    config = transformers.Tipsv2Config(text_config=text, vision_config=vision, temperature_init_value=0.3)
    images = transformers.Tipsv2ImageProcessor(size={"height": SIZE, "width": SIZE})
    _save(folder, transformers.Tipsv2Model, config, transformers.Tipsv2Processor(images, tokenizer), seed)


def write_dual_encoder(folder, *, seed=3):
    """GroupViT: two towers of a type that has no row of its own."""
    transformers = _transformers()
    tokenizer = _clip_tokenizer()
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "depths": [1, 1], "image_size": SIZE,
        "patch_size": 8, "num_hidden_layers": 2, "num_group_tokens": [4, 0], "num_output_groups": [4, 2],
    }  # fmt: skip
    config = transformers.GroupViTConfig(
        text_config=_clip_text(tokenizer), vision_config=vision, projection_dim=24, projection_intermediate_dim=32
    )
    images = transformers.CLIPImageProcessorPil(**_CLIP_PIXELS)
    _save(folder, transformers.GroupViTModel, config, transformers.CLIPProcessor(images, tokenizer), seed)


def write_blip(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _bert_tokenizer()
    text = {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "encoder_hidden_size": 32}
    text |= {"bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    config = transformers.BlipConfig(text_config=text, vision_config=_PATCHED, image_text_hidden_size=16)
    images = transformers.BlipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    processor = transformers.BlipProcessor(images, tokenizer)
    _save(folder, transformers.BlipForImageTextRetrieval, config, processor, seed)


def write_blip_2(folder, *, seed=3):
    transformers = _transformers()
    tokenizer = _bert_tokenizer()
    text = {**_TOWER, "vocab_size": len(tokenizer) + 1, "max_position_embeddings": 64, "encoder_hidden_size": 32}
    text["use_qformer_text_input"] = True
    config = transformers.Blip2Config(
        vision_config=_PATCHED, qformer_config=text, num_query_tokens=3, image_text_hidden_size=16,
        text_config={"model_type": "opt", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                     "ffn_dim": 16, "vocab_size": 40, "word_embed_proj_dim": 16},
    )  # fmt: skip
    images = transformers.BlipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    processor = transformers.Blip2Processor(images, tokenizer, num_query_tokens=3)
    _save(folder, transformers.Blip2ForImageTextRetrieval, config, processor, seed)


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


def write_owlv2(folder, *, seed=3, longest=16):
    _write_owl(folder, "Owlv2", seed, longest)


def write_owlvit(folder, *, seed=3, longest=16):
    _write_owl(folder, "OwlViT", seed, longest)


BUILDERS = {
    "open_clip": write_open_clip,
    "clip": write_clip,
    "align": write_align,
    "altclip": write_altclip,
    "chinese_clip": write_chinese_clip,
    "metaclip_2": write_metaclip_2,
    "siglip": write_siglip,
    "siglip2": write_siglip2,
    "tipsv2": write_tipsv2,
    "flava": write_flava,
    "dual_encoder": write_dual_encoder,
    "blip": write_blip,
    "blip_2": write_blip_2,
    "bridgetower": write_bridgetower,
    "owlv2": write_owlv2,
    "owlvit": write_owlvit,
}


def _transformers():
    declare_missing_operators()
    import transformers

    return transformers


def _write_owl(folder, kind, seed, longest):
    processing, images, configured, model = (
        getattr(_transformers(), f"{kind}{part}")
        for part in ("Processor", "ImageProcessorPil", "Config", "ForObjectDetection")
    )
    processor = processing(images(size={"height": SIZE, "width": SIZE}), _owl_tokenizer(longest))
    _save(folder, model, configured(**_owl_towers(processor.tokenizer)), processor, seed)


def _owl_tokenizer(longest):
    # Token 0 is the padding, as in the released checkpoints, where it is the letter "!".
    return _tokenizer(first=("!",), last=("<start>", "<end>"), template="<start> $A <end>", pad="!", longest=longest)


def _owl_towers(tokenizer):
    ends = {"bos_token_id": len(tokenizer) - 2, "eos_token_id": len(tokenizer) - 1}
    text = {"hidden_size": 24, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}
    return {
        "text_config": {
            **text,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": tokenizer.model_max_length,
            **ends,
        },
        "vision_config": {**_VISION, "patch_size": 8, "num_hidden_layers": 2},
        "projection_dim": 24,
    }


def _clip_tokenizer():
    return _tokenizer(last=("<start>", "<end>"), template="<start> $A <end>", pad="<end>", longest=77)


def _clip_text(tokenizer):
    ends = {"bos_token_id": len(tokenizer) - 2, "eos_token_id": len(tokenizer) - 1}
    return {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 77, **ends}


def _bert_tokenizer():
    return _tokenizer(first=("[PAD]", "[CLS]", "[SEP]"), template="[CLS] $A [SEP]", pad="[PAD]", longest=128)


def _roberta_tokenizer():
    return _tokenizer(first=("<s>", "<pad>", "</s>"), template="<s> $A </s>", pad="<pad>", longest=90)


def _sticky_tokenizer():
    """As SigLIP's: nothing before a text, and no mask: the padding is read too."""
    made = _tokenizer(first=("</s>",), template="$A </s>", pad="</s>", longest=64)
    made.model_input_names = ["input_ids"]
    return made


def _siglip2_tokenizer():
    """As SigLIP 2's: Gemma's kind, in lower case; here a token a letter."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    letters = [chr(i) for i in range(ord("!"), ord("~") + 1)]
    names = [*special, "▁", *letters, *(f"<0x{i:02X}>" for i in range(256))]
    return _transformers().Siglip2Tokenizer(
        vocab={name: i for i, name in enumerate(names)}, merges=[], padding_side="right", model_max_length=64,
        model_input_names=["input_ids"],
    )  # fmt: skip


def _sticky_text(tokenizer):
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    return {**_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "projection_size": 32, **ends}


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
    *starts, _, end = template.split()
    ids = [(token, tokenizer.token_to_id(token)) for token in (*starts, end)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=starts[0] if starts else None, eos_token=end, pad_token=pad,
        model_max_length=longest,
    )  # fmt: skip


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
