"""LLaVA as transformers has it: LLaVA-1.5, BakLLaVA, LLaVA-Gemma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.device import Placement
from plumbline.errors import CheckpointError
from plumbline.generators.folders import GeneratorFiles
from plumbline.generators.prompt_format import IMAGE
from plumbline.generators.transformers_backend import TransformersBackend

if TYPE_CHECKING:
    import torch
    from transformers.cache_utils import Cache

    from plumbline.generators.sampling import Read

# Two prompts that begin differently, to see what stands before the image.
_PROBES = ("Describe this.", "What is it?")


class LlavaBackend(TransformersBackend):
    """Reads the image, and what its format puts before it, once for all prompts.

    Parameters
    ----------
    files : GeneratorFiles
    placement : Placement

    Raises
    ------
    CheckpointError
        If it cannot be loaded whole, its tokenizer has another image token than its model, or its chat template puts
        the prompt before the image.
    """

    def __init__(self, files: GeneratorFiles, placement: Placement) -> None:
        super().__init__(files, placement)
        self._image_token = _image_token(files, self._model, self._tokenizer)
        heads = [self._prompts.around_image(probe, self._image_token).head for probe in _PROBES]
        if heads[0] != heads[1]:
            raise CheckpointError(
                "the chat template of this checkpoint puts the prompt before the image",
                where=files.folder,
                found=self._prompts.render(_PROBES[0]),
                expected="the image first, as LLaVA was trained",
            )
        self._head = heads[0]
        self._image_tokens = self._count_image_tokens()

    def _look(self, pixels: torch.Tensor | None, count: int) -> Cache:
        """Return what the language model has read when it has read the image: (count) rows."""
        import torch

        from plumbline.generators.sampling import read_prompts

        features = self._features(pixels)
        head = self._embedded(self._head)
        shown = [torch.cat([head, feature.to(head.dtype)]) for feature in features]
        return read_prompts(self._model, shown).cache

    def _read(self, seen: Cache, pairs: Sequence[tuple[int, str]]) -> Read:
        import torch

        from plumbline.generators.sampling import read_prompts, selected

        tails = [self._embedded(self._prompts.around_image(text, self._image_token).tail) for _, text in pairs]
        images = torch.tensor([image for image, _ in pairs], device=self.device)
        return read_prompts(self._model, tails, before=selected(seen, images))

    def _prompt_length(self, text: str) -> int:
        head, tail = self._prompts.around_image(text, self._image_token)
        return len(head) + self._image_tokens + len(tail)

    def _features(self, pixels: torch.Tensor | None) -> Any:
        """Return a (tokens, d) tensor of each image."""
        return self._model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output

    def _count_image_tokens(self) -> int:
        """Return how many tokens an image is, as the model itself makes them of a grey picture."""
        import torch
        from PIL import Image

        assert self._images is not None
        grey = self._images.prepare(Image.new("RGB", (640, 480), (127, 127, 127)))[None]
        pixels = self._images.normalisation(grey, device=self.device).to(self._model.dtype)
        with torch.inference_mode():
            return len(self._features(pixels)[0])


def _image_token(files: GeneratorFiles, model: Any, tokenizer: Any) -> int:
    token = tokenizer.convert_tokens_to_ids(IMAGE)
    if token is None or token == tokenizer.unk_token_id or token != model.config.image_token_id:
        raise CheckpointError(
            "the tokenizer of this checkpoint has another image token than its model",
            where=files.folder,
            found=f"{IMAGE} is {token}",
            expected=f"image_token_index: {model.config.image_token_id}",
        )
    return int(token)
