"""Tiny checkpoints of today's models of images and texts, made and saved by transformers, with weights that are drawn.

`IMAGE_TEXT[model_type](folder)` writes one with its own configuration, processor and chat template: several tiles of an
image, windows and recurrent layers where the type has them.
"""

from tiny_lvlms import SIZE, _ends, _tokenizer, _transformers, randomised

_BASE = ("<unk>", "<s>", "</s>", "<pad>")
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
_TEXT = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 1024, "head_dim": 8,
}  # fmt: skip
_PARTS = (
    "{% for m in messages %}START{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}IMAGE"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}END\n{% endfor %}{% if add_generation_prompt %}STARTassistant\n"
    "{% endif %}"
)
BROKEN_TEMPLATES = ("{{ 1 / 0 }}", "{{ 'a' * 10 ** 30 }}", "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}")
"""What a chat template may hold that fails whatever it is given."""
_SQUARE = {"height": SIZE, "width": SIZE}


def write_qwen2_5_vl(folder, *, seed=3):
    """Qwen2.5-VL: patches of any proportion, positions of three axes."""
    _qwen(folder, seed, "Qwen2_5_VL", "Qwen2_5_VLProcessor", _SWIN, _mrope([1, 1, 2]))


def write_qwen3_vl(folder, *, seed=3):
    """Qwen3-VL: features of several layers of the vision tower enter the language model."""
    vision = {**_QWEN_VISION, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]}
    _qwen(folder, seed, "Qwen3VL", "Qwen3VLProcessor", vision, _mrope([2, 1, 1]))


def write_qwen3_5(folder, *, seed=3):
    """Qwen3.5: layers with a recurrent state beside layers with attention, and a part for thinking."""
    vision = {**_QWEN_VISION, "num_position_embeddings": 16}
    text = {
        **_mrope([2, 1, 1], partial_rotary_factor=1.0), "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    }  # fmt: skip
    _qwen(folder, seed, "Qwen3_5", "Qwen3VLProcessor", vision, text, thinks="<think>\n")


def write_gemma3(folder, *, seed=3):
    """Gemma 3: windows that are shorter than an image, whose tokens look at each other in both directions."""
    transformers = _transformers()
    tokenizer = _with(boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>")
    text = _text(tokenizer, sliding_window=12, layer_types=["sliding_attention", "full_attention"])
    config = transformers.Gemma3Config(
        text_config={**text, "query_pre_attn_scalar": 8, "tie_word_embeddings": True},
        vision_config={**_VISION, "image_size": SIZE, "patch_size": 8, "vision_use_head": False},
        mm_tokens_per_image=4, boi_token_index=tokenizer.boi_token_id, eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
    )  # fmt: skip
    images = transformers.Gemma3ImageProcessorPil(size=_SQUARE)
    processor = transformers.Gemma3Processor(
        images, tokenizer, image_seq_length=4, chat_template=_template("<start_of_turn>", tokenizer.boi_token)
    )
    _save(folder, "Gemma3", config, processor, seed)


def write_gemma4(folder, *, seed=3):
    """Gemma 4: soft tokens as many as the image's proportions give, layers that share keys and values."""
    transformers = _transformers()
    tokenizer = _with(
        boi_token="<|image>", eoi_token="<image|>", image_token="<|image|>", boa_token="<|audio>", eoa_token="<audio|>",
        audio_token="<|audio|>",
    )  # fmt: skip
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|video|>"]})
    text = _text(
        tokenizer, sliding_window=12, layer_types=["sliding_attention", "full_attention"] * 2, num_hidden_layers=4,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=len(tokenizer), num_kv_shared_layers=2,
        use_bidirectional_attention="vision",
    )  # fmt: skip
    vision = {**_VISION, "num_key_value_heads": 4, "head_dim": 8, "patch_size": 4, "position_embedding_size": 64}
    config = transformers.Gemma4Config(
        text_config=text, vision_config=vision, audio_config=None, boi_token_id=tokenizer.boi_token_id,
        eoi_token_id=tokenizer.eoi_token_id, image_token_id=tokenizer.image_token_id,
        audio_token_id=tokenizer.audio_token_id, video_token_id=tokenizer.convert_tokens_to_ids("<|video|>"),
    )  # fmt: skip
    images = transformers.Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70, pooling_kernel_size=3)
    processor = transformers.Gemma4Processor(
        transformers.Gemma4AudioFeatureExtractor(), images, tokenizer,
        transformers.Gemma4VideoProcessor(patch_size=4, pooling_kernel_size=3),
        chat_template=_template("<|turn>", tokenizer.image_token),
    )  # fmt: skip
    _save(folder, "Gemma4", config, processor, seed)


def write_internvl(folder, *, seed=3):
    """InternVL: tiles of an image and the whole of it."""
    transformers = _transformers()
    tokenizer = _with(
        start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>"
    )
    config = transformers.InternVLConfig(
        text_config={"model_type": "qwen2", **_text(tokenizer)},
        vision_config={**_VISION, "image_size": [SIZE, SIZE], "patch_size": [8, 8]},
        image_token_id=tokenizer.context_image_token_id, image_seq_length=4, tie_word_embeddings=False,
    )  # fmt: skip
    images = transformers.GotOcr2ImageProcessorPil(size=_SQUARE, crop_to_patches=True, max_patches=4)
    processor = transformers.InternVLProcessor(
        images, tokenizer, transformers.InternVLVideoProcessor(size=_SQUARE), image_seq_length=4,
        chat_template=_template("<|im_start|>", tokenizer.context_image_token),
    )  # fmt: skip
    _save(folder, "InternVL", config, processor, seed)


def write_llava_next(folder, *, seed=3):
    """LLaVA-NeXT: tiles by the image's proportions."""
    transformers = _transformers()
    tokenizer = _with(image_token="<image>")
    config = transformers.LlavaNextConfig(
        vision_config=transformers.CLIPVisionConfig(**_VISION, image_size=SIZE, patch_size=8),
        text_config={"model_type": "mistral", **_text(tokenizer)}, image_token_index=tokenizer.image_token_id,
        image_grid_pinpoints=_GRID,
    )  # fmt: skip
    images = transformers.LlavaNextImageProcessorPil(
        size={"shortest_edge": SIZE}, crop_size=_SQUARE, image_grid_pinpoints=_GRID
    )
    processor = transformers.LlavaNextProcessor(
        images, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=_template("[INST]", "<image>"),
    )  # fmt: skip
    _save(folder, "LlavaNext", config, processor, seed)


def write_llava_onevision(folder, *, seed=3):
    """LLaVA-OneVision: SigLIP, tiles, Qwen2."""
    transformers = _transformers()
    tokenizer = _with(image_token="<image>", video_token="<video>")
    vision = transformers.SiglipVisionConfig(**_VISION, image_size=SIZE, patch_size=8, vision_use_head=False)
    config = transformers.LlavaOnevisionConfig(
        vision_config=vision, text_config={"model_type": "qwen2", **_text(tokenizer)}, image_grid_pinpoints=_GRID,
        image_token_index=tokenizer.image_token_id, video_token_index=tokenizer.video_token_id,
    )  # fmt: skip
    processor = transformers.LlavaOnevisionProcessor(
        transformers.LlavaOnevisionImageProcessorPil(size=_SQUARE, image_grid_pinpoints=_GRID), tokenizer,
        transformers.LlavaOnevisionVideoProcessor(size=_SQUARE), num_image_tokens=16,
        vision_feature_select_strategy="full", chat_template=_template("<|im_start|>", "<image>"),
    )  # fmt: skip
    _save(folder, "LlavaOnevision", config, processor, seed)


def write_idefics3(folder, *, seed=3):
    """Idefics3: rows and columns of tiles with names of their own."""
    transformers = _transformers()
    tokenizer = _of_tiles()
    images = transformers.Idefics3ImageProcessorPil(
        size={"longest_edge": 2 * SIZE}, max_image_size={"longest_edge": SIZE}
    )
    processor = transformers.Idefics3Processor(
        images, tokenizer, image_seq_len=4, chat_template=_template("<|im_start|>", "<image>")
    )
    _idefics(folder, seed, "Idefics3", processor)


def write_smolvlm(folder, *, seed=3):
    """SmolVLM: Idefics3 with videos."""
    transformers = _transformers()
    tokenizer = _of_tiles()
    sizes = {"size": {"longest_edge": 2 * SIZE}, "max_image_size": {"longest_edge": SIZE}}
    processor = transformers.SmolVLMProcessor(
        transformers.SmolVLMImageProcessorPil(**sizes), tokenizer, transformers.SmolVLMVideoProcessor(**sizes),
        image_seq_len=4, chat_template=_template("<|im_start|>", "<image>"),
    )  # fmt: skip
    _idefics(folder, seed, "SmolVLM", processor)


def write_llama4(folder, *, seed=3):
    """Llama 4: experts, layers that see a chunk alone, tiles."""
    transformers = _transformers()
    tokenizer = _tokenizer((*_BASE, *_LLAMA4))
    token = tokenizer.convert_tokens_to_ids
    text = _text(
        tokenizer, attention_chunk_size=16, layer_types=["chunked_attention", "full_attention"],
        no_rope_layers=[1, 0], num_local_experts=2, moe_layers=[1], intermediate_size_mlp=64,
    )  # fmt: skip
    vision = {
        **_VISION, "image_size": SIZE, "patch_size": 8, "vision_output_dim": 32, "projector_input_dim": 32,
        "projector_output_dim": 32, "intermediate_size": 128,
    }  # fmt: skip
    config = transformers.Llama4Config(
        text_config=text, vision_config=vision, boi_token_index=token("<|image_start|>"),
        eoi_token_index=token("<|image_end|>"), image_token_index=token("<|patch|>"),
    )  # fmt: skip
    processor = transformers.Llama4Processor(
        transformers.Llama4ImageProcessor(size=_SQUARE, max_patches=4), tokenizer, patch_size=8,
        chat_template=_template("<|header_start|>", "<|image|>"),
    )  # fmt: skip
    _save(folder, "Llama4", config, processor, seed)


def write_mistral3(folder, *, seed=3):
    """Mistral 3: Pixtral's rows of patches."""
    transformers = _transformers()
    tokenizer = _tokenizer((*_BASE, "[IMG]", "[IMG_BREAK]", "[IMG_END]"))
    vision = transformers.PixtralVisionConfig(**_VISION, image_size=64, patch_size=8, head_dim=8)
    config = transformers.Mistral3Config(
        vision_config=vision, text_config={"model_type": "mistral", **_text(tokenizer)},
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"), spatial_merge_size=2, tie_word_embeddings=False,
    )  # fmt: skip
    images = transformers.PixtralImageProcessorPil(size={"longest_edge": 64}, patch_size=8)
    processor = transformers.PixtralProcessor(
        images, tokenizer, patch_size=8, spatial_merge_size=2, chat_template=_template("[INST]", "[IMG]")
    )
    _save(folder, "Mistral3", config, processor, seed)


def write_paligemma(folder, *, seed=3):
    """PaliGemma: image and prompt look at each other in both directions; no chat template."""
    transformers = _transformers()
    tokenizer = _with(image_token="<image>")
    images = transformers.SiglipImageProcessorPil(size=_SQUARE)
    images.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(images, tokenizer)
    config = transformers.PaliGemmaConfig(
        vision_config={**_VISION, "image_size": SIZE, "patch_size": 8, "vision_use_head": False, "projection_dim": 32},
        text_config={"model_type": "gemma", **_text(tokenizer)}, image_token_index=tokenizer.image_token_id,
        projection_dim=32, hidden_size=32,
    )  # fmt: skip
    _save(folder, "PaliGemma", config, processor, seed)


IMAGE_TEXT = {
    "qwen2_5_vl": write_qwen2_5_vl,
    "qwen3_vl": write_qwen3_vl,
    "qwen3_5": write_qwen3_5,
    "gemma3": write_gemma3,
    "gemma4": write_gemma4,
    "internvl": write_internvl,
    "llava_next": write_llava_next,
    "llava_onevision": write_llava_onevision,
    "idefics3": write_idefics3,
    "smolvlm": write_smolvlm,
    "llama4": write_llama4,
    "mistral3": write_mistral3,
    "paligemma": write_paligemma,
}

_GRID = [[SIZE, 2 * SIZE], [2 * SIZE, SIZE], [2 * SIZE, 2 * SIZE]]
_QWEN_TOKENS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_LLAMA4 = (
    "<|image|>", "<|image_start|>", "<|image_end|>", "<|patch|>", "<|tile_x_separator|>", "<|tile_y_separator|>"
)  # fmt: skip
_QWEN_VISION = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "patch_size": 8, "out_hidden_size": 32
}  # fmt: skip
_SWIN = {**_QWEN_VISION, "window_size": 32, "fullatt_block_indexes": [1]}


def _mrope(section, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": section, **more}}


def _text(tokenizer, **more):
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {**_TEXT, "vocab_size": len(tokenizer), **ids, **more}


def _with(**named):
    """Return a tokenizer with special tokens that have names."""
    tokenizer = _tokenizer((*_BASE, *named.values()))
    tokenizer._set_model_specific_special_tokens(named)
    return tokenizer


def _of_tiles():
    places = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    names = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<video>")
    return _tokenizer((*_BASE, *names, *places), size=360)


def _template(start, image):
    return _PARTS.replace("START", start).replace("IMAGE", image).replace("END", "</s>")


def _qwen(folder, seed, kind, processor, vision, text, thinks=""):
    transformers = _transformers()
    tokenizer = _tokenizer((*_BASE, *_QWEN_TOKENS, *(["<think>", "</think>"] if thinks else [])), start=False)
    token = tokenizer.convert_tokens_to_ids
    named = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    tokens = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    config = getattr(transformers, f"{kind}Config")(
        text_config={**_text(tokenizer), **text}, vision_config=vision,
        **{name: token(text) for name, text in zip(named, tokens, strict=True)},
    )  # fmt: skip
    images = transformers.Qwen2VLImageProcessorPil(
        patch_size=8, size={"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    )
    videos = transformers.Qwen2VLVideoProcessor if kind == "Qwen2_5_VL" else transformers.Qwen3VLVideoProcessor
    template = _template("<|im_start|>", "<|vision_start|><|image_pad|><|vision_end|>")
    template = template.replace("assistant\n", f"assistant\n{thinks}")
    made = getattr(transformers, processor)(images, tokenizer, videos(patch_size=8), chat_template=template)
    _save(folder, kind, config, made, seed)


def _idefics(folder, seed, kind, processor):
    transformers = _transformers()
    config = getattr(transformers, f"{kind}Config")(
        vision_config={**_VISION, "image_size": SIZE, "patch_size": 8},
        text_config={"model_type": "llama", **_text(processor.tokenizer)}, image_token_id=processor.image_token_id,
        scale_factor=2,
    )  # fmt: skip
    _save(folder, kind, config, processor, seed)


def _save(folder, kind, config, processor, seed):
    model = randomised(lambda: getattr(_transformers(), f"{kind}ForConditionalGeneration")(config), seed)
    _ends(model, processor.tokenizer)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
