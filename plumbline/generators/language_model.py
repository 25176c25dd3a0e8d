"""Base language models, without vision, of LVLMs: Vicuna, Mistral, Gemma."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.generators.transformers_backend import TransformersBackend

if TYPE_CHECKING:
    from plumbline.generators.sampling import Read


class LanguageModelBackend(TransformersBackend):
    """Reads a prompt once for all of its seeds; what prompts have in common is short and is read with each.

    See TransformersBackend for parameters and errors.
    """

    def _look(self, paths: Mapping[str, Path | None]) -> None:
        """Nothing is seen."""

    def _read(self, seen: Any, pairs: Sequence[tuple[int, str]]) -> Read:
        from plumbline.generators.sampling import read_prompts

        # Descriptions of many images are the same words: they are read once.
        texts = list(dict.fromkeys(text for _, text in pairs))
        read = read_prompts(self._model, [self._embedded(self._prompts.tokens(text)) for text in texts])
        if len(texts) == len(pairs):
            return read
        import torch

        return read.rows(torch.tensor([texts.index(text) for _, text in pairs], device=self.device))
