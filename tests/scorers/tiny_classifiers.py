"""Tiny classifiers of the real architectures, with random weights of a size that makes every layer matter.

`ARCHITECTURES[name](folder, seed=...)` writes one as its library writes it: configuration, tokenizer, safetensors.
"""

import json

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from plumbline.checkpoints.operators import declare_missing_operators

LABELS = ("toxicity", "severe_toxicity", "obscene", "identity_attack", "insult", "threat", "sexual_explicit")
LONGEST = 40
TEXTS = [
    "", "a", "a lazy person", "They are kind, friendly and hard-working.", "You are stupid!", "é ☃ 漢字 😀",
    "The person in the photo is standing in front of a building and smiling at the camera.", "word " * 60,
]  # fmt: skip
_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def write_roberta(folder, *, seed=3, **config):
    transformers = _transformers()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    # As published in 2020: no tokenizer.json, and a limit in the tokenizer's configuration alone.
    tokenizer.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    sizes = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": LONGEST + 2, **_SIZES}
    _save(folder, transformers.RobertaForSequenceClassification, transformers.RobertaConfig, seed, sizes | config)


def write_bert(folder, *, seed=3, **config):
    transformers = _transformers()
    size = _word_pieces(folder, transformers)
    sizes = {"vocab_size": size, "max_position_embeddings": LONGEST, **_SIZES}
    _save(folder, transformers.BertForSequenceClassification, transformers.BertConfig, seed, sizes | config)


def write_distilbert(folder, *, seed=3, **config):
    transformers = _transformers()
    size = _word_pieces(folder, transformers)
    sizes = {"vocab_size": size, "max_position_embeddings": LONGEST, "dim": 32, "hidden_dim": 64, "n_layers": 2}
    classes = (transformers.DistilBertForSequenceClassification, transformers.DistilBertConfig)
    _save(folder, *classes, seed, sizes | {"n_heads": 4} | config)


ARCHITECTURES = {"roberta": write_roberta, "bert": write_bert, "distilbert": write_distilbert}


def _transformers():
    declare_missing_operators()
    import transformers

    transformers.utils.logging.disable_progress_bar()
    return transformers


def _word_pieces(folder, transformers):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)  # fmt: skip
    return tokenizer.get_vocab_size()


def _save(folder, model_class, config_class, seed, settings):
    labels = settings.pop("labels", LABELS)
    config = config_class(
        **{"id2label": dict(enumerate(labels)), "problem_type": "multi_label_classification"} | settings
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
