"""The tokenizer of the tiny models: a byte-level BPE that lowers case, so that any later prompt can be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CONTEXT_LENGTH = 48
PAD, START, END = "<pad>", "<start>", "<end>"

_MAX_VOCABULARY = 512


def write_tokenizer(
    folder: Path,
    texts: Sequence[str],
    *,
    first: tuple[str, ...] = (PAD, START, END),
    last: str | None = None,
    longest: int = CONTEXT_LENGTH,
) -> int:
    """Train a tokenizer on captions and write it as transformers reads it.

    Parameters
    ----------
    folder : pathlib.Path
        Gets `tokenizer.json` and `tokenizer_config.json`.
    texts : sequence of str
        What the merges are learnt from.
    first : tuple of str
        The special tokens with ids 0, 1, ...
    last : str, optional
        A special token that gets the highest id, for text towers that find the end of a text by it.
    longest : int
        Tokens that the model takes.

    Returns
    -------
    int
        Size of the vocabulary, special tokens included.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCABULARY,
        special_tokens=list(first),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if last is not None:
        tokenizer.add_special_tokens([last])
    special = [(token, tokenizer.token_to_id(token)) for token in (START, END)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=special
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        eos_token=END,
        pad_token=PAD,
        model_max_length=longest,
    )
    fast.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())
