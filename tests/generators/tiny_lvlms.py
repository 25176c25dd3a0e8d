"""Tiny checkpoints of the real generative architectures, with random weights of a size that makes every layer matter.

`LVLMS[name](folder, seed=...)` and `BASE_LLMS[name](folder, seed=...)` write one as its library writes it:
configuration, safetensors, image processor, tokenizers, chat template. The tokenizers know every byte, so any text can
be read.
"""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from plumbline.checkpoints.operators import declare_missing_operators

SIZE = 32
TEXTS = ["Describe this image in as much detail as possible.", "What is this person like? A story of a chef."]
LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{# Render all images first #}{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}{# Render all text next #}{% for content in message['content'] | "
    "selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' + "
    "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endfor %}"
)
_LLAMA_TOKENS = ("<unk>", "<s>", "</s>", "<pad>", "<image>")
_GEMMA_TOKENS = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<image>")
_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
_TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def write_llava(folder, *, seed=3, template=LLAVA_TEMPLATE, text=None, vision=None, patch_size=8, shards=None):
    """LLaVA-1.5: CLIP, Llama, its processor's chat template."""
    tokenizer = _tokenizer(_LLAMA_TOKENS)
    config = _transformers().LlamaConfig(**_text(tokenizer, **(text or {})))
    _save_llava(folder, config, tokenizer, seed, template=template, vision=vision, patch_size=patch_size, shards=shards)


def write_bakllava(folder, *, seed=4):
    """BakLLaVA: Mistral inside, with grouped heads and a window; no chat template, as first released."""
    tokenizer = _tokenizer(_LLAMA_TOKENS)
    text = _text(tokenizer, num_key_value_heads=2, sliding_window=256)
    _save_llava(folder, _transformers().MistralConfig(**text), tokenizer, seed)


def write_vipllava(folder, *, seed=3):
    """ViP-LLaVA: image tokens from several layers of the vision tower."""
    tokenizer = _tokenizer(_LLAMA_TOKENS)
    config = _transformers().LlamaConfig(**_text(tokenizer))
    layers = {"kind": "VipLlava", "vision_feature_layer": [-1, -2]}
    _save_llava(folder, config, tokenizer, seed, template=LLAVA_TEMPLATE, **layers)


def write_llava_gemma(folder, *, seed=5):
    """LLaVA-Gemma: Gemma inside, with tied weights and the tokenizer's own chat template."""
    tokenizer = _tokenizer(_GEMMA_TOKENS)
    tokenizer.chat_template = GEMMA_TEMPLATE
    text = _text(tokenizer, num_key_value_heads=1, head_dim=16)
    _save_llava(folder, _transformers().GemmaConfig(**text), tokenizer, seed)


def write_instructblip(folder, *, seed=6):
    """InstructBLIP: its vision tower, a Q-Former with a tokenizer of its own, Llama."""
    transformers = _transformers()
    tokenizer, qformer = _tokenizer(_LLAMA_TOKENS), _tokenizer(("[PAD]", "[CLS]", "[SEP]"), end="[SEP]")
    config = transformers.InstructBlipConfig(
        vision_config={**_VISION, "image_size": SIZE, "patch_size": 8},
        qformer_config={**_VISION, "vocab_size": len(qformer), "max_position_embeddings": 128},
        text_config={"model_type": "llama", **_text(tokenizer)},
        num_query_tokens=6,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    model = randomised(lambda: transformers.InstructBlipForConditionalGeneration(config), seed)
    _ends(model, tokenizer)
    model.save_pretrained(folder)
    images = transformers.BlipImageProcessorPil(size={"height": SIZE, "width": SIZE})
    transformers.InstructBlipProcessor(images, tokenizer, qformer, num_query_tokens=6).save_pretrained(folder)


def write_vicuna(folder, *, seed=7):
    """Vicuna: Llama without a chat template."""
    tokenizer = _tokenizer(_LLAMA_TOKENS)
    _save_text(folder, _transformers().LlamaConfig(**_text(tokenizer)), tokenizer, seed, top_p=0.6)


def write_mistral(folder, *, seed=8):
    """Mistral, with the tokenizer's chat template."""
    tokenizer = _tokenizer(_LLAMA_TOKENS)
    tokenizer.chat_template = MISTRAL_TEMPLATE
    text = _text(tokenizer, num_key_value_heads=2, sliding_window=256)
    _save_text(folder, _transformers().MistralConfig(**text), tokenizer, seed)


def write_gemma(folder, *, seed=9):
    """Gemma, with the tokenizer's chat template."""
    tokenizer = _tokenizer(_GEMMA_TOKENS)
    tokenizer.chat_template = GEMMA_TEMPLATE
    text = _text(tokenizer, num_key_value_heads=1, head_dim=16)
    _save_text(folder, _transformers().GemmaConfig(**text), tokenizer, seed)


LVLMS = {
    "llava": write_llava,
    "bakllava": write_bakllava,
    "llava_gemma": write_llava_gemma,
    "instructblip": write_instructblip,
}
BASE_LLMS = {"vicuna": write_vicuna, "mistral": write_mistral, "gemma": write_gemma}


def _transformers():
    declare_missing_operators()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers


def _text(tokenizer, **more):
    ids = {
        name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }  # fmt: skip
    return {**_TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 512, **ids, **more}


def _tokenizer(special, *, end=None, start=True, size=320):
    """A byte-level BPE that puts its start token before a text, unless told not to, and `end` after it."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    roles = {"bos_token": ("<s>", "<bos>", "[CLS]"), "eos_token": ("</s>", "<eos>", "[SEP]")}
    roles |= {"pad_token": ("<pad>", "[PAD]"), "unk_token": ("<unk>",)}
    named = {role: next((t for t in names if t in special), None) for role, names in roles.items()}
    single = (f"{named['bos_token']} $A" if start else "$A") + (f" {end}" if end else "")
    ids = [(token, tokenizer.token_to_id(token)) for token in (named["bos_token"], end) if token]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{role: token for role, token in named.items() if token}
    )


def _save_llava(
    folder, text, tokenizer, seed, *, template=None, vision=None, patch_size=8, shards=None, kind="Llava", **more
):  # fmt: skip
    transformers = _transformers()
    size = (vision or {}).get("image_size", SIZE)
    tower = transformers.CLIPVisionConfig(**{**_VISION, "image_size": size, "patch_size": patch_size, **(vision or {})})
    configured, built = (getattr(transformers, f"{kind}{p}") for p in ("Config", "ForConditionalGeneration"))
    config = configured(
        vision_config=tower,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(size // patch_size) ** 2,
        **more,
    )
    model = randomised(lambda: built(config), seed)
    _ends(model, tokenizer)
    model.save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size={"height": size, "width": size})
    transformers.LlavaProcessor(
        images, tokenizer, patch_size=patch_size, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, chat_template=template,
    ).save_pretrained(folder)  # fmt: skip


def _save_text(folder, config, tokenizer, seed, **decoding):
    model = randomised(lambda: _transformers().AutoModelForCausalLM.from_config(config), seed)
    _ends(model, tokenizer, **({"do_sample": True, **decoding} if decoding else {}))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _ends(model, tokenizer, **decoding):
    """Let ten more tokens end an answer, so that answers are of different lengths."""
    model.generation_config = _transformers().GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=[tokenizer.eos_token_id, *range(60, 70)],
        pad_token_id=tokenizer.pad_token_id, **decoding,
    )  # fmt: skip


def randomised(build, seed):
    """Build a model whose every weight is drawn: fresh ones are so near zero that no layer would matter."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim >= 2:
                    # A tied table is read as weights too, so that it must be small: Gemma scales what it reads.
                    tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
                    a_table = ("embed" in name and not tied) or "query_tokens" in name
                    parameter.normal_(std=(1 if a_table else parameter[0].numel()) ** -0.5)
                else:
                    parameter.normal_(mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.2)
    return model.eval()
