"""The families of generative models, and every `model_type` of transformers that answers in words about an image."""

from __future__ import annotations

from dataclasses import dataclass

from plumbline.checkpoints.folders import Family


@dataclass(frozen=True)
class GeneratorFamily(Family):
    """A family of generative models; an adapter is a `module:Class` below `plumbline.generators`.

    Attributes
    ----------
    sees : bool
        Whether it takes images.
    text_models : tuple of str
        Values of `model_type` of the language model inside that it is known to have, whose documented prompt format
        stands in for a chat template; none where any will do.
    model_class : str
        Class of transformers that holds the model, or the mapping that names one for each `model_type`.
    """

    sees: bool
    text_models: tuple[str, ...]
    model_class: str


SHARES = {
    "qwen2_5_vl": "Qwen2.5-VL",
    "qwen3_vl": "Qwen3-VL",
    "qwen3_5": "Qwen3.5",
    "gemma3": "Gemma 3",
    "gemma4": "Gemma 4",
    "internvl": "InternVL",
    "llava_next": "LLaVA-NeXT",
    "llava_onevision": "LLaVA-OneVision",
    "idefics3": "Idefics3",
    "smolvlm": "SmolVLM",
    "llama4": "Llama 4",
    "mistral3": "Mistral 3",
}
"""`model_type` and name of proved models that read an image once for all prompts about it."""

READS_TOGETHER = {"paligemma": "PaliGemma"}
"""`model_type` and name of proved models whose image and prompt look at each other: they are read together."""

WITHOUT_TEMPLATE = {"paligemma": "<image>{}"}
"""`model_type` -> what its model card writes where there is no chat template."""

UNPROVED = (
    "aria", "aya_vision", "chameleon", "cohere2_vision", "cohere_compass", "cosmos3_edge", "deepseek_vl",
    "deepseek_vl_hybrid", "dots3_note", "emu3", "ernie4_5_vl_moe", "exaone4_5", "fast_vlm", "fuyu", "gemma3n",
    "gemma4_unified", "glm46v", "glm4v", "glm4v_moe", "glm5_next", "glmga", "granite4_vision", "hunyuan_vl",
    "hyperclovax_vision_v2", "idefics", "idefics2", "inkling2", "inkling_mm_model", "janus", "kimi_k25", "lfm2_vl",
    "lfm3_vl", "minicpmv4_6", "minicpmv4_7", "minimax_m3_vl", "mistral4", "mistral_large4", "mllama", "molmo2",
    "muse_glimmer", "muse_spark", "ovis2", "perception_lm", "qwen2_vl", "qwen3_5_moe", "qwen3_vl_moe", "qwen4_exp",
    "step3p7", "vipllava",
)  # fmt: skip
"""`model_type` of models that transformers maps beside the proved ones: read by its `generate`, tested with none."""

_OCR = "it transcribes documents and does not take instructions about people"
_VIDEO = "it was made for videos"
_SOUND = "it hears and speaks too: an audit of its images alone would not be one of the model"
_CAPTIONS = "it has no chat format: what it is asked beside the image is not an instruction"
NOT_MEANT = {
    **dict.fromkeys(
        (
            "deepseek_ocr2", "glm_ocr", "got_ocr2", "granite_docling", "kosmos-2.5", "lighton_ocr", "minicpm_ocr",
            "paddleocr_vl", "pix2struct", "pp_chart2table", "pp_formulanet", "qianfan_ocr", "udop", "unlimited_ocr",
        ),
        _OCR,
    ),
    **dict.fromkeys(("instructblipvideo", "llava_next_video", "video_llama_3", "video_llava"), _VIDEO),
    **dict.fromkeys(("cosmos3_omni", "nemotron_h_omni", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"), _SOUND),
    **dict.fromkeys(("blip", "blip-2", "git", "kosmos-2", "vision-encoder-decoder"), _CAPTIONS),
    "diffusion_gemma": "it writes all tokens at once: a row's draws cannot be its own",
    "evolla": "it reads proteins",
    "florence2": "it takes names of tasks and no instructions",
    "pi0": "it moves robots",
    "shieldgemma2": "it answers whether an image breaks a policy, and nothing else",
    "t5gemma2": "an encoder reads image and prompt, which the sampling of rows here does not know",
}  # fmt: skip
"""`model_type` of what transformers maps beside them, and why no audit of answers reads it."""

IMAGE_TEXT = "image_text_to_text"

GENERATOR_FAMILIES: dict[str, GeneratorFamily] = {
    family.name: family
    for family in (
        GeneratorFamily(
            "llava", "LLaVA", ("llava",), "image_text_to_text:LlavaBackend", 1,
            True, ("llama", "mistral", "gemma"), "LlavaForConditionalGeneration",
        ),
        GeneratorFamily(
            "instructblip", "InstructBLIP", ("instructblip",), "image_text_to_text:InstructBlipBackend", 1,
            True, ("llama",), "InstructBlipForConditionalGeneration",
        ),
        GeneratorFamily(
            "language_model", "Language model", ("llama", "mistral", "gemma"),
            "transformers_backend:LanguageModelBackend", 1, False,
            ("llama", "mistral", "gemma"), "AutoModelForCausalLM",
        ),
        GeneratorFamily(
            IMAGE_TEXT, "Model of images and texts", (*SHARES, *READS_TOGETHER, *UNPROVED),
            "image_text_to_text:ImageTextBackend", 1, True, (), "AutoModelForImageTextToText",
        ),
    )
}  # fmt: skip
"""LLaVA-1.5, BakLLaVA (Mistral inside) and LLaVA-Gemma are one architecture of transformers, and so one family."""


def how_it_reads(family: str, model_type: str, thinking: bool | None = None) -> str:
    """Return how a model reads an image and the prompts about it, for people.

    Parameters
    ----------
    thinking : bool, optional
        What the audit file says of it.
    """
    switched = "" if thinking is None else f"; its thinking is switched {'on' if thinking else 'off'}"
    return _reads(family, model_type) + switched


def _reads(family: str, model_type: str) -> str:
    if model_type in UNPROVED:
        return f"image and prompt together, by transformers' generate; nobody has tested {model_type} here"
    if model_type in READS_TOGETHER:
        return "image and prompt together, by transformers' generate"
    if GENERATOR_FAMILIES[family].sees:
        return "an image once for all prompts about it"
    return "each prompt once for all of its seeds"
