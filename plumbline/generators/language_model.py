"""Language models without eyes, the twins of LVLMs: Vicuna, Mistral, Gemma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.device import Placement
from plumbline.generators.folders import GeneratorFiles
from plumbline.generators.loaded_model import load_model, load_tokenizer
from plumbline.generators.prompt_format import format_of
from plumbline.generators.transformers_backend import TransformersBackend

if TYPE_CHECKING:
    import torch

    from plumbline.generators.sampling import Read


class LanguageModelBackend(TransformersBackend):
    """Reads a prompt once for all of its seeds; what prompts have in common is short and is read with each.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, or its chat template takes no prompt.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        tokenizer = load_tokenizer(files)
        super().__init__(
            files,
            placement,
            model=load_model(files, placement),
            tokenizer=tokenizer,
            prompts=format_of(files, tokenizer),
            images=None,
        )

    def _look(self, pixels: torch.Tensor | None, count: int) -> None:
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

    def _prompt_length(self, text: str) -> int:
        return len(self._prompts.tokens(text))
