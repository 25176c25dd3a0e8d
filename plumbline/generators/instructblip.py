"""InstructBLIP as transformers has it, with Vicuna inside: its Q-Former reads the prompt with the image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.device import Placement
from plumbline.errors import GenerationError
from plumbline.generators.folders import QFORMER_TOKENIZER, GeneratorFiles
from plumbline.generators.loaded_model import load_tokenizer
from plumbline.generators.transformers_backend import TransformersBackend

if TYPE_CHECKING:
    import torch

    from plumbline.generators.sampling import Read


class InstructBlipBackend(TransformersBackend):
    """Runs the vision tower once for all prompts of an image, and the Q-Former once for all seeds of a prompt.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self._qformer_tokenizer = load_tokenizer(files, QFORMER_TOKENIZER)

    @property
    def _language_model(self) -> Any:
        return self._model.language_model

    def _look(self, paths: Mapping[str, Path | None]) -> torch.Tensor:
        """Return the (images, patches, d) output of the vision tower."""
        seen = self._model.vision_model(pixel_values=self._pixels(paths), return_dict=True)
        output: torch.Tensor = seen.last_hidden_state
        return output

    def _read(self, seen: torch.Tensor, pairs: Sequence[tuple[int, str]]) -> Read:
        import torch

        from plumbline.generators.sampling import read_prompts

        for _, text in pairs:
            self._require_qformer(text)
        # The queries come first, before the start token of the prompt.
        queries = self._queries(seen, pairs)
        prompts = [self._embedded(self._prompts.tokens(text)) for _, text in pairs]
        shown = [torch.cat([query.to(prompt.dtype), prompt]) for query, prompt in zip(queries, prompts)]
        return read_prompts(self._language_model, shown)

    def _queries(self, seen: torch.Tensor, pairs: Sequence[tuple[int, str]]) -> torch.Tensor:
        """Return (pairs, queries, d): what the Q-Former finds in each image for each prompt, for the language model."""
        import torch

        model = self._model
        read = self._qformer_tokenizer(
            [text for _, text in pairs], padding=True, padding_side="right", return_tensors="pt"
        ).to(self.device)
        images = seen[torch.tensor([image for image, _ in pairs], device=self.device)]
        queries = model.query_tokens.expand(len(pairs), -1, -1)
        mask = torch.cat([read["attention_mask"].new_ones(queries.shape[:2]), read["attention_mask"]], dim=1)
        states = model.qformer(
            input_ids=read["input_ids"],
            attention_mask=mask,
            query_embeds=queries,
            encoder_hidden_states=images,
            encoder_attention_mask=mask.new_ones(images.shape[:2]),
            return_dict=True,
        ).last_hidden_state[:, : queries.shape[1]]
        projected: torch.Tensor = model.language_projection(states)
        return projected

    def _require_qformer(self, prompt: str) -> None:
        """Refuse a prompt that is longer than the Q-Former takes."""
        read = len(self._qformer_tokenizer(prompt)["input_ids"])
        longest = self._model.config.qformer_config.max_position_embeddings
        if read > longest:
            raise GenerationError(
                "a prompt is longer than the Q-Former takes",
                where=prompt[:200],
                found=f"{read} tokens",
                expected=f"at most {longest}",
            )
