"""The open_clip family: CLIP and its relatives, from a folder on disk, safetensors only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_json
from plumbline.encoders.addresses import CheckpointFiles
from plumbline.encoders.encoder import EncoderIdentity
from plumbline.errors import CheckpointError
from plumbline.torchvision_operators import declare_missing_operators

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


class OpenClipEncoder:
    """A checkpoint loaded by open_clip's `local-dir:`. Implements `plumbline.encoders.encoder.Encoder`.

    Parameters
    ----------
    files : CheckpointFiles
        Where it is, with the digests that were read before loading.
    device : str
        `cpu`, `cuda` or `cuda:N`.

    Raises
    ------
    CheckpointError
        If open_clip cannot load it, or would load another file than `files.weights`; random weights are never
        used, and nothing is downloaded.
    """

    def __init__(self, files: CheckpointFiles, *, device: str = "cpu") -> None:
        _go_offline()
        declare_missing_operators()
        import open_clip
        import torch
        from safetensors import SafetensorError

        _require_same_file(files)
        address = f"local-dir:{files.folder}"
        try:
            model, _, self._transform = open_clip.create_model_and_transforms(
                address, device=device, precision="fp32", require_pretrained=True, weights_only=True
            )
            self._tokenizer = open_clip.get_tokenizer(address)
        except (RuntimeError, ValueError, TypeError, OSError, KeyError, SafetensorError) as error:
            raise CheckpointError(
                "open_clip could not load this checkpoint",
                where=files.folder,
                found=str(error).splitlines()[0] if str(error) else type(error).__name__,
                expected="open_clip_config.json, safetensors weights and, if the config names one, a tokenizer",
            ) from error
        self._model: Any = model.eval()
        self._torch = torch
        self.device = device
        self.weights_sha256 = files.weights_sha256
        self.logit_scale = float(model.logit_scale.exp().item())
        self.parameters = sum(p.numel() for p in model.parameters())
        self.identity = EncoderIdentity(
            weights=files.digest,
            processor=digest_json(
                {"image": open_clip.get_model_preprocess_cfg(model), "text": type(self._tokenizer).__name__}
            ),
            backend=f"open_clip-{version('open_clip_torch')}/torch-{version('torch').split('+')[0]}/{device[:4]}",
            decoder=f"pillow-{version('pillow')}",
            dtype="float32",
        )
        self.width = int(self.embed_texts(["a photo"]).shape[1])

    def prepare(self, image: Image) -> torch.Tensor:
        """Apply the checkpoint's own evaluation transform to an RGB image."""
        tensor: torch.Tensor = self._transform(image)
        return tensor

    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:
        """Return (b, d) image embeddings, float32, not normalised."""
        with self._torch.inference_mode():
            embedded = self._model.encode_image(batch.to(self.device), normalize=False)
        return np.asarray(embedded.float().cpu().numpy(), dtype=np.float32)

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, d) text embeddings, float32, not normalised."""
        with self._torch.inference_mode():
            embedded = self._model.encode_text(self._tokenizer(list(texts)).to(self.device), normalize=False)
        return np.asarray(embedded.float().cpu().numpy(), dtype=np.float32)


def _go_offline() -> None:
    """Keep this process from downloading, whatever its environment says: a run uses what is on disk."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import constants

    # The variable is read once, at import, which may have been long ago.
    constants.HF_HUB_OFFLINE = True


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
