"""What can be asked of an encoder."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """What can be asked of an encoder; suites, labels and mitigations say which of these they need."""

    EMBED_IMAGES = "embed_images"
    """Images as vectors in a space shared with the texts, where a cosine means something."""

    EMBED_TEXTS = "embed_texts"
    """Texts as vectors in that space."""

    LOGITS = "logits"
    """One number an image and text, higher for a better match; enough for a choice among candidates."""

    TEXT_GRADIENTS = "text_gradients"
    """Text embeddings that can be differentiated by the input embeddings, for learned prompts."""
