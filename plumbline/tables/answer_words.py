"""Which data files say what words in answers mean: who is named, what is competent, what refuses, what offends."""

from __future__ import annotations

from functools import cache

from plumbline.digests import digest_bytes, digest_json
from plumbline.tables.data_files import data_bytes

_LISTS = (
    "competence_words.txt", "offensive_words.yaml", "person_words.yaml", "refusal_patterns.yaml", "stop_words.txt"
)  # fmt: skip


@cache
def answer_words_digest() -> str:
    """Return the digest of the word lists that answers are read with."""
    return digest_json([digest_bytes(data_bytes(name)) for name in _LISTS])
