"""The open_clip family: CLIP and its relatives, from a folder on disk, safetensors only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.loading import loading, ready_libraries
from plumbline.encoders.encoder import Crop
from plumbline.encoders.folders import CheckpointFiles
from plumbline.encoders.torch_encoder import (
    Normalisation,
    TorchEncoder,
    as_rows,
    grey_levels,
    replaced_embeddings,
    require_start,
    with_placeholders,
)
from plumbline.errors import CheckpointError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


class OpenClipEncoder(TorchEncoder):
    """A checkpoint loaded by open_clip's `local-dir:`. Implements `plumbline.encoders.encoder.DualEncoder`.

    Parameters
    ----------
    files : CheckpointFiles
        Where it is, with the digests that were read before loading.
    placement : Placement

    Raises
    ------
    CheckpointError
        If open_clip cannot load it, or would load another file than `files.weights`; random weights are never
        used, and nothing is downloaded.
    """

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        ready_libraries()
        import open_clip

        model, transform, self._tokenizer = _load(files)
        self._to_grey_levels, normalisation = _split(transform, files)
        super().__init__(
            files,
            placement,
            model=model,
            library="open_clip_torch",
            processor={
                "image": open_clip.get_model_preprocess_cfg(model),
                "text": type(self._tokenizer).__name__,
            },
            normalisation=normalisation,
            crop=_simple_crop(self._to_grey_levels),
        )
        self.logit_scale = float(model.logit_scale.exp().item())
        self.width = int(self.embed_texts(["a photo"]).shape[1])
        self._compile((model.visual, model.text if hasattr(model, "text") else model.transformer))

    def prepare(self, image: Image) -> torch.Tensor:
        """Apply the checkpoint's own evaluation transform to an RGB image, up to its normalisation: uint8."""
        for step in self._to_grey_levels:
            image = step(image)
        return grey_levels(image)

    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:
        """Return (b, d) image embeddings, float32, not normalised."""
        with self._forward():
            return as_rows(self._model.encode_image(self._pixels(batch), normalize=False))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, d) text embeddings, float32, not normalised."""
        with self._forward():
            return as_rows(self._model.encode_text(self._ids(texts), normalize=False))

    def token_vectors(self, word: str) -> torch.Tensor:
        """Return the (k, w) input embeddings of a word's tokens, to start learned tokens from."""
        ids, bare = both = self._ids([word, ""])
        require_start(both, self._starts())
        # The word's tokens stand where an empty text has its end token and padding.
        count = int((ids != bare[-1]).sum() - (bare != bare[-1]).sum())
        return self._token_layer()(ids[1 : 1 + count]).detach()

    def differentiable_texts(self, texts: Sequence[str], learned: torch.Tensor) -> torch.Tensor:
        """Return (b, d) embeddings of texts that begin with (k, w) learned vectors; gradients reach `learned`."""
        ids = self._ids(texts)
        require_start(ids, self._starts())
        ids = with_placeholders(ids, learned.shape[0])
        with self._forward(gradients=True), replaced_embeddings(self._token_layer(), learned):
            embedded: torch.Tensor = self._model.encode_text(ids, normalize=False).float()
        return embedded

    def _ids(self, texts: Sequence[str]) -> torch.Tensor:
        ids: torch.Tensor = self._tokenizer(list(texts)).to(self.device)
        return ids

    def _starts(self) -> tuple[int | None, ...]:
        """Return the start tokens: open_clip's own tokenizer names one, one of transformers may have two."""
        own = getattr(self._tokenizer, "sot_token_id", None)
        inner = getattr(self._tokenizer, "tokenizer", None)
        return own, getattr(inner, "bos_token_id", None), getattr(inner, "cls_token_id", None)

    def _token_layer(self) -> Any:
        text = getattr(self._model, "text", self._model)
        if hasattr(text, "token_embedding"):
            return text.token_embedding
        return text.transformer.get_input_embeddings()


def _load(files: CheckpointFiles) -> tuple[Any, Any, Any]:
    """Return the model, its evaluation transform and its tokenizer, from the digested file alone."""
    import open_clip

    _require_same_file(files)
    address = f"local-dir:{files.folder}"
    expected = "open_clip_config.json, safetensors weights and, if the config names one, a tokenizer"
    with loading("open_clip could not load this checkpoint", where=files.folder, expected=expected):
        model, _, transform = open_clip.create_model_and_transforms(
            address, precision="fp32", require_pretrained=True, weights_only=True
        )
        return model, transform, open_clip.get_tokenizer(address)


def _split(transform: Any, files: CheckpointFiles) -> tuple[list[Any], Normalisation]:
    """Cut open_clip's evaluation transform before its tensor: what comes before gives grey levels."""
    names = [type(step).__name__ for step in getattr(transform, "transforms", [])]
    if names[-2:] != ["MaybeToTensor", "Normalize"]:
        raise CheckpointError(
            "the image transform of this checkpoint has other last steps than open_clip's own",
            where=files.folder,
            found=", ".join(names),
            expected="…, MaybeToTensor, Normalize",
        )
    last = transform.transforms[-1]
    mean, std = ([float(v) for v in values] for values in (last.mean, last.std))
    return list(transform.transforms[:-2]), Normalisation(mean=mean, std=std)


def _simple_crop(steps: Sequence[Any]) -> Crop | None:
    """Return the crop where the steps are exactly: shorter side, centre, RGB."""
    if [type(step).__name__ for step in steps] != ["Resize", "CenterCrop", "MaybeConvertMode"]:
        return None
    resize, crop = steps[:2]
    interpolation = str(resize.interpolation.value)
    whole = isinstance(resize.size, int) and tuple(crop.size) == (resize.size, resize.size)
    if not whole or resize.max_size is not None or interpolation not in ("bicubic", "bilinear"):
        return None
    return Crop(resize.size, interpolation)


def _require_same_file(files: CheckpointFiles) -> None:
    from open_clip.factory import _find_checkpoint_in_dir

    chosen = _find_checkpoint_in_dir(files.folder)
    if chosen != str(files.weights):
        raise CheckpointError(
            "open_clip would load another file than the one that was digested",
            where=files.folder,
            found=chosen,
            expected=files.weights.name,
            hint="keep only the safetensors file in the folder",
        )
