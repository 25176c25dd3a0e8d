"""The interface between encoders of all families and the embedding engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plumbline.digests import digest_json
from plumbline.errors import EncodingError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image


@dataclass(frozen=True)
class EncoderIdentity:
    """Everything about an encoder that its results depend on, by content, never by name or time.

    Attributes
    ----------
    weights : str
        Digest of weights, configuration and tokenizer files.
    processor : str
        Digest of the image transform and of the text tokenisation.
    backend : str
        Library and version that runs the model.
    decoder : str
        Library and version that turns files into pixels.
    dtype : str
        Number type of the forward pass.
    """

    weights: str
    processor: str
    backend: str
    decoder: str
    dtype: str

    @property
    def digest(self) -> str:
        """Return the sha256 of all of it."""
        return digest_json(asdict(self))

    def cache_key(self, kind: str, *, inputs: str, batch_rows: int) -> str:
        """Return the key of a shard: sha256 of canonical JSON of identity, kind, inputs' digest and batch size.

        The batch size is part of it because the last bits of a product depend on it.
        """
        return digest_json({"kind": kind, "schema": 1, "inputs": inputs, "batch_rows": batch_rows, **asdict(self)})


@dataclass(frozen=True)
class Crop:
    """A preprocessing that is only: shorter side to `size`, then the central `size` x `size` pixels.

    An encoder whose own preprocessing is exactly this may offer it, so that a faster decoder can stand in.

    Attributes
    ----------
    size : int
        Pixels.
    interpolation : str
        `bicubic` or `bilinear`, antialiased.
    """

    size: int
    interpolation: str


class Encoder(Protocol):
    """A vision-language model on a device: the interface common to all families.

    Attributes
    ----------
    family : str
        Name in `plumbline.encoders.families.FAMILIES`.
    identity : EncoderIdentity
    weights_sha256 : str
        Of the weights file alone, as `sha256sum` prints it.
    parameters : int
        Number of weights.
    device : str
        Such as `cpu` or `cuda:0`.
    crop : Crop or None
        The image preprocessing, where it is that simple.
    """

    family: str
    identity: EncoderIdentity
    weights_sha256: str
    parameters: int
    device: str
    crop: Crop | None

    def prepare(self, image: Image) -> torch.Tensor:
        """Resize and crop an RGB image as the checkpoint's own preprocessing does, up to the normalisation.

        Returns
        -------
        (3, h, w) tensor
            uint8, 0 to 255, where the family's own resize gives whole grey levels; else float32, 0 to 1.
        """


class DualEncoder(Encoder, Protocol):
    """An encoder that embeds images and texts separately; a score is the product of two vectors.

    Attributes
    ----------
    width : int
        Length d of an embedding.
    logit_scale : float
        The checkpoint's own factor from cosine to logit (CLIP: the exponentiated temperature; ALIGN: one over the
        temperature); 1 where products of the vectors are logits already.
    logit_bias : float
        What the checkpoint adds to scale x cosine: 0, but for models trained with a sigmoid, whose probability of a
        match is 1 / (1 + exp(-logit)). A choice or a softmax over candidates is the same with it or without.
    """

    width: int
    logit_scale: float
    logit_bias: float

    def embed_images(self, batch: torch.Tensor) -> NDArray[np.float32]:
        """Return (b, d) embeddings of a batch of `prepare`d images, float32 and not normalised."""

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (b, d) embeddings of texts, float32 and not normalised."""


def match_probabilities(
    images: NDArray[np.floating[Any]], texts: NDArray[np.floating[Any]], *, logit_scale: float, logit_bias: float
) -> NDArray[np.float64]:
    """Return how probable it is that each text matches each image, to an encoder that was trained with a sigmoid.

    1 / (1 + exp(-(logit_scale x cosine + logit_bias))), as SigLIP is trained (Zhai et al., 2023, equation 1): what a
    threshold can be put on. A choice or a softmax over candidates, which the suites of an audit take, is the same with
    the bias or without it.

    Parameters
    ----------
    images, texts : (n, d) and (m, d) arrays
        Vectors of an encoder, of any length.
    logit_scale, logit_bias : float
        The checkpoint's own, as its loaded encoder has them.

    Returns
    -------
    (n, m) array of float64, 0 to 1; NaN for a vector of length 0.

    Raises
    ------
    EncodingError
        If the bias is 0: the encoder was trained with a softmax over candidates, and a logit alone says nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import plumbline
    >>> images, texts = np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> plumbline.match_probabilities(images, texts, logit_scale=100, logit_bias=-12).round(3)
    array([[1., 0.]])
    """
    if logit_bias == 0:
        raise EncodingError(
            "this encoder gives no probability that a text matches an image",
            found="logit_bias: 0, as of an encoder that was trained with a softmax over candidates",
            expected="an encoder that was trained with a sigmoid, such as SigLIP",
            hint="compare candidates with each other: their softmax sums to 1",
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = (np.asarray(rows, float) / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, texts))
    probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-(logit_scale * a @ b.T + logit_bias)))
    return probabilities


class PromptedEncoder(DualEncoder, Protocol):
    """An encoder of a family that offers `Capability.TEXT_GRADIENTS`: its texts can begin with learned vectors."""

    def token_vectors(self, word: str) -> torch.Tensor:
        """Return the (k, w) input embeddings of a word's k tokens, float32, without gradient: where to start from.

        Raises
        ------
        EncodingError
            If the tokenizer puts no start token before a text.
        """

    def differentiable_texts(self, texts: Sequence[str], learned: torch.Tensor) -> torch.Tensor:
        """Return (b, d) embeddings, float32 and not normalised, of texts after (k, w) learned vectors.

        The vectors stand between the start token and the words; gradients flow into them and nothing else.

        Raises
        ------
        EncodingError
            If a text leaves no room for the vectors, or the tokenizer puts no start token before a text.
        """


class PairEncoder(Encoder, Protocol):
    """A cross-encoder: it must see image and text together, so that image embeddings cannot be cached."""

    def score_pairs(self, batch: torch.Tensor, *suites: Sequence[str]) -> NDArray[np.float32]:
        """Return the (b, m) logits of a batch of `prepare`d images against the m texts of suites, float32.

        What depends on the image alone, or on a text alone, is computed once for each. The logits of a suite are the
        same, to the last bit, whatever suites stand beside it.
        """
