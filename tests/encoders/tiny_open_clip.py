"""open_clip's own configurations, shrunk: every setting that decides what is computed stays, sizes become tiny.

A timm tower becomes the smallest timm model of its class, a text model of the hub a local configuration of its type, a
tokenizer of the hub a tiny one in the folder.
"""

import json
from functools import cache

import torch
from safetensors.torch import save_file
from tiny_architectures import _randomised, _tokenizer

from plumbline.checkpoints.loading import ready_libraries

WIDTH = 64
# By class in timm: the smallest models that there are.
TIMM = {
    "VisionTransformer": "test_vit",
    "Eva": "vit_pe_core_tiny_patch16_384",
    "ConvNeXt": "test_convnext",
    "FastVit": "fastvit_t8",
    "SwinTransformer": "swin_tiny_patch4_window7_224",
    "VisionTransformerRelPos": "vit_relpos_small_patch16_224",
}
HUB = {
    "roberta-base": "roberta",
    "xlm-roberta-base": "xlm-roberta",
    "xlm-roberta-large": "xlm-roberta",
    "google/mt5-base": "mt5",
    "google/mt5-xl": "mt5",
    "facebook/nllb-200-distilled-600M": "m2m_100",
    "facebook/nllb-200-distilled-1.3B": "m2m_100",
}
_HUB_SIZES = {
    "roberta": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32},
    "mt5": {"d_model": 32, "d_ff": 32, "d_kv": 16, "num_heads": 2, "num_layers": 1},
    "m2m_100": {
        "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 128,
    },
}  # fmt: skip


def configuration(name):
    """Return one of open_clip's configurations as its factory has it."""
    ready_libraries()
    import open_clip

    return open_clip.get_model_config(name)


def shrunk(name, folder):
    """Return the shrunk configuration, having written what it names into the folder."""
    content = configuration(name)
    vision, text = dict(content["vision_cfg"]), dict(content["text_cfg"])
    tower = vision.get("timm_model_name")
    if tower:
        vision["timm_model_name"], width = _smallest(tower)
        # A tower without a projection gives its own width.
        content["embed_dim"] = width if vision.get("timm_proj") in ("none", None) else WIDTH
        vision["image_size"] = _side(vision["timm_model_name"])
    elif isinstance(vision["layers"], list):
        vision |= {"layers": [1, 1, 1, 1], "width": 8, "image_size": 64}
        content["embed_dim"] = WIDTH
    else:
        vision |= {"layers": 2, "width": WIDTH, "head_width": 32, "patch_size": 8, "image_size": 32}
        content["embed_dim"] = WIDTH
    if "attn_pooler_heads" in vision:
        vision["attn_pooler_heads"] = 2
    tokenizer = None
    if text.get("hf_tokenizer_name") or text.get("hf_model_name"):
        first = ("<s>", "</s>", "<pad>") if text.get("eos_id") == 1 else ("<pad>", "<s>", "</s>")
        tokenizer = _tokenizer(first=first, template="<s> $A </s>", pad="<pad>", longest=90)
        tokenizer.sep_token = "</s>"
        tokenizer.save_pretrained(folder)
    if text.get("hf_model_name"):
        text["hf_model_name"] = str(_hub_folder(HUB[text["hf_model_name"]], folder / "text", len(tokenizer)))
    else:
        text |= {"width": WIDTH, "heads": 2, "layers": 2}
        if text.get("proj_type") == "none":
            text["width"] = content["embed_dim"]
        if tokenizer is not None:
            text["vocab_size"] = len(tokenizer)
    content |= {"vision_cfg": vision, "text_cfg": text}
    if "multimodal_cfg" in content:
        more = {"width": text.get("width", WIDTH), "heads": 2, "layers": 1, "vocab_size": text.get("vocab_size", 340)}
        content["multimodal_cfg"] = {**content["multimodal_cfg"], **more, "attn_pooler_heads": 2}
    return content


def write_configuration(name, folder, *, seed=3):
    """Write a checkpoint of a configuration, shrunk, as open_clip's `local-dir:` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"model_cfg": shrunk(name, folder), "preprocess_cfg": {"mean": [0.5, 0.45, 0.4], "std": [0.3, 0.25, 0.2]}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    import open_clip

    model = _randomised(
        lambda: open_clip.create_model(f"local-dir:{folder}", load_weights=False, pretrained_text=False), seed
    )
    save_file(
        {k: v.clone().contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors"
    )


@cache
def _smallest(tower):
    """Return the smallest timm model of the class of a tower, and its width."""
    import timm

    with torch.device("meta"):
        kind = type(timm.create_model(tower)).__name__
        name = "vitamin_small_224" if tower.startswith("vitamin") else TIMM.get(kind, tower)
        return name, timm.create_model(name, num_classes=0).num_features


def _side(tower):
    import timm

    return timm.get_pretrained_cfg(tower).input_size[-1]


def _hub_folder(kind, folder, words):
    folder.mkdir()
    sizes = {"vocab_size": words, "pad_token_id": 0, **_HUB_SIZES["roberta" if "roberta" in kind else kind]}
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **sizes}))
    return folder
