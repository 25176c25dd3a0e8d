"""LLaVA as transformers has it: LLaVA-1.5, BakLLaVA, LLaVA-Gemma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plumbline.checkpoints.device import Placement
from plumbline.errors import CheckpointError
from plumbline.generators.folders import GeneratorFiles
from plumbline.generators.image_text_to_text import ImageTextBackend
from plumbline.generators.prompt_format import IMAGE, PROBES

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


class LlavaBackend(ImageTextBackend):
    """Reads the image, and what its format puts before it, once for all prompts.

    Its formats are older than chat templates and processors that put in the tokens of an image; else it is an
    ImageTextBackend.

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
        if not self.shares:
            raise CheckpointError(
                "the chat template of this checkpoint puts the prompt before the image",
                where=files.folder,
                found=self._prompts.render(PROBES[0]),
                expected="the image first, as LLaVA was trained",
            )

    def _may_share(self, files: GeneratorFiles) -> bool:
        self._image_token = _image_token(files, self._model, self._tokenizer)
        self._image_tokens = self._count_image_tokens()
        return True

    def _inputs(self, image: Image, prompt: str) -> dict[str, Any]:
        import torch

        ids = torch.tensor([self._ids(image, prompt)], device=self.device)
        return {"input_ids": ids, "pixel_values": self._prepared(image)}

    def _ids(self, image: Image, prompt: str) -> list[int]:
        head, tail = self._prompts.around_image(prompt, self._image_token)
        return head + [self._image_token] * self._image_tokens + tail

    def _prepared(self, image: Image) -> torch.Tensor:
        """Return (1, 3, h, w) pixels on the device, as the checkpoint's own preprocessing gives them."""
        prepared = self._images.prepare(image)[None]
        return self._images.normalisation(prepared, device=self.device).to(self._model.dtype)

    def _count_image_tokens(self) -> int:
        """Return how many tokens an image is, as the model itself makes them of a grey picture."""
        import torch
        from PIL import Image

        with torch.inference_mode():
            pixels = self._prepared(Image.new("RGB", (640, 480), (127, 127, 127)))
            return len(self._model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output[0])


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
