"""Base of the transformers families: the checkpoint's own image processing, loading, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import LARGEST_SIDE, CheckpointFiles, edges_are_pixels
from plumbline.checkpoints.loading import (
    architecture_of,
    loading,
    modest_images,
    pretrained,
    ready_libraries,
    require_modest_strips,
    whole_model,
)
from plumbline.encoders.encoder import Crop
from plumbline.encoders.text_lengths import TokenCounter, too_long_error
from plumbline.encoders.torch_encoder import Normalisation, TorchEncoder
from plumbline.errors import CheckpointError, EncodingError
from plumbline.version import library_version

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

MOST_PADDED = 512
"""Tokens that texts are padded to at most, whatever a checkpoint says that it takes: attention is their square."""
_INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}
# Odd sizes and proportions, so that a step of another kind shows.
_PROBE_SIZE = (61, 87)
_TOLERANCE = 1e-4


class ImageProcessor:
    """The checkpoint's own preprocessing: `prepare` up to the normalisation, `normalisation` from there on.

    Parameters
    ----------
    processor : transformers.ProcessorMixin
        With the family's own defaults.
    folder : Path
        For messages.
    backend : str
        What its image processor must run on.

    Attributes
    ----------
    normalisation : Normalisation
    crop : Crop or None

    Raises
    ------
    CheckpointError
        If the image processor runs on something else, or the two parts together give other pixels than the whole.
    """

    def __init__(self, processor: Any, *, folder: Path, backend: str = "pil") -> None:
        self._whole = processor
        self._images = processor.image_processor
        # What the joined processor of a family asks of its image processor, whatever the checkpoint's own default.
        self._defaults = dict(getattr(type(processor), "images_kwargs", None) or {})
        self._defaults.pop("return_tensors", None)
        self._backend = getattr(self._images, "backend", None)
        if self._backend != backend:
            raise CheckpointError(
                f"this image processor does not run on {backend}, and another would give other pixels",
                where=folder,
                found=f"{type(self._images).__name__}, backend {self._backend}",
                expected=f"backend {backend}",
            )
        # A family with a class of its own does not ask which one the files name: `require_modest` could not know it.
        edges = [getattr(self._images.size, name, None) or 0 for name in ("shortest_edge", "longest_edge")]
        if max(edges) > LARGEST_SIDE and not edges_are_pixels(type(self._images).__name__):
            raise CheckpointError(
                "this checkpoint asks for more than any model needs",
                where=folder,
                found=f"images with edges of {max(edges):,} for {type(self._images).__name__}",
                expected=f"{LARGEST_SIDE:,} at most",
            )
        # OWLv2 rescales, then resizes: its pixels are never whole grey levels afterwards.
        self._rescaled_first = type(self._images).__name__.startswith("Owlv2")
        self.normalisation = self._normalisation()
        self.crop = self._simple_crop()
        self._require_own_pixels(folder)

    def prepare(self, image: Image) -> torch.Tensor:
        """Return (3, h, w): uint8, or float32 in 0 to 1 for a processor that rescales before it resizes.

        Raises
        ------
        EncodingError
            If the processor cannot take an image of this size.
        """
        import torch

        options = {**self._defaults, "do_rescale": self._rescaled_first, "do_normalize": False}
        if hasattr(self._images, "include_top"):
            options["include_top"] = False
        try:
            pixels = self._images(image, return_tensors="np", **options)["pixel_values"][0]
        except ValueError as error:
            raise EncodingError(
                "the checkpoint's own preprocessing cannot take this image",
                where=f"an image of {image.width} x {image.height} pixels",
                found=error,
                hint="BridgeTower rounds the sides down to a multiple of 32, so that a narrow strip has none left",
            ) from error
        kind = np.float32 if self._rescaled_first else np.uint8
        return torch.from_numpy(np.ascontiguousarray(pixels.astype(kind, copy=False)))

    def settings(self) -> dict[str, Any]:
        """Return everything that decides the pixels, for a digest."""
        options = {k: v for k, v in self._images.to_dict().items() if k not in ("_name_or_path", "processor_class")}
        settings = {
            "class": type(self._images).__name__,
            "backend": self._backend,
            "own": options,
            "joined": self._defaults,
        }
        return {**settings, "scipy": library_version("scipy")} if self._rescaled_first else settings

    def _option(self, name: str, default: Any = None) -> Any:
        return self._defaults.get(name, getattr(self._images, name, default))

    def _normalisation(self) -> Normalisation:
        mean, std = [0.0] * 3, [1.0] * 3
        own_std = [float(v) for v in self._option("image_std") or std]
        if self._option("do_normalize"):
            mean, std = [float(v) for v in self._option("image_mean") or mean], own_std
        if self._option("include_top"):
            # EfficientNet's classification preprocessing divides by the deviation once more.
            std = [a * b for a, b in zip(std, own_std, strict=True)]
        if not self._option("do_rescale"):
            return Normalisation(mean=mean, std=std, scale=1.0)
        offset = -1.0 if self._option("rescale_offset") else 0.0
        return Normalisation(mean=mean, std=std, scale=float(self._option("rescale_factor")), offset=offset)

    def _simple_crop(self) -> Crop | None:
        """Return the crop where the steps are exactly: shorter side, centre."""
        from transformers.image_processing_backends import PilBackend

        processor_class = type(self._images)
        plain = processor_class.resize is PilBackend.resize and processor_class.center_crop is PilBackend.center_crop
        steps = self._option("do_resize") and self._option("do_center_crop") and not self._option("do_pad")
        if not (plain and steps):
            return None
        size, crop = ({k: v for k, v in dict(self._option(n)).items() if v} for n in ("size", "crop_size"))
        interpolation = _INTERPOLATIONS.get(int(self._option("resample")))
        if size.keys() != {"shortest_edge"} or interpolation is None:
            return None
        side = int(size["shortest_edge"])
        return Crop(side, interpolation) if crop == {"height": side, "width": side} else None

    def _require_own_pixels(self, folder: Path) -> None:
        """Prove on one image that the two parts together are the checkpoint's own preprocessing."""
        from PIL import Image

        probe = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*_PROBE_SIZE, 3), dtype=np.uint8))
        with modest_images(folder):
            whole: NDArray[np.float32] = self._whole(images=probe, return_tensors="np")["pixel_values"]
            in_two_parts = self._in_two_parts(probe)
        require_modest_strips(self.prepare, folder)
        if whole.shape != in_two_parts.shape or not np.allclose(whole, in_two_parts, atol=_TOLERANCE):
            same = whole.shape == in_two_parts.shape
            raise CheckpointError(
                "the preprocessing of this checkpoint has a step that is not known here",
                where=folder,
                found=f"{type(self._images).__name__}: pixels {whole.shape}, {in_two_parts.shape} in two parts"
                + (f", {np.abs(whole - in_two_parts).max():.3g} apart" if same else ""),
                expected=f"the same pixels to {_TOLERANCE}",
            )

    def _in_two_parts(self, image: Image) -> NDArray[np.float32]:
        return np.asarray(self.normalisation(self.prepare(image)[None], device="cpu").numpy())


class Classes(NamedTuple):
    """Names of transformers' classes of the model, and of what joins its image processor and its tokenizer."""

    model: str
    processor: str


class TransformersEncoder(TorchEncoder):
    """A checkpoint loaded by transformers from its folder.

    Parameters
    ----------
    files : CheckpointFiles
        Where it is, with the digests that were read before loading.
    placement : Placement

    Raises
    ------
    CheckpointError
        If transformers cannot load it, a weight of the model is not in the file or one of the file not in the model,
        or the preprocessing has a step that is not known here.
    """

    model_class: str
    """Class of transformers that holds the model."""

    processor_class: str
    """Class of transformers that joins image processor and tokenizer, with the family's own defaults."""

    image_processor_class: ClassVar[str] = "AutoImageProcessor"
    """Class of transformers that resizes, or the one that the checkpoint names."""

    image_backend: ClassVar[str] = "pil"
    """What it runs on: the processors that run on torchvision give other pixels than those of published results."""

    left_padding: ClassVar[bool] = False
    """Whether a tokenizer may pad on the left: most text towers read what they return at places from the left."""

    padded_to: ClassVar[int | None] = None
    """Tokens that every text is padded to; by default the longest text that the model takes, at most `MOST_PADDED`."""

    other_heads: ClassVar[tuple[str, ...]] = ()
    """Beginnings of weight names that belong to heads for other tasks, which the audit does not run."""

    renamed: ClassVar[dict[str, str]] = {}
    """Patterns of weight names in the file, and what the model calls them."""

    def __init__(self, files: CheckpointFiles, placement: Placement) -> None:
        ready_libraries()
        model, tokenizer, joined = self._load(files)
        self._images: Any = self._image_processor(joined, files.folder)
        self._tokenizer: Any = tokenizer
        super().__init__(
            files,
            placement,
            model=model,
            library="transformers",
            processor={
                "image": self._images.settings(),
                "text": {"class": type(tokenizer).__name__, "padded_to": self.padded_to},
                "tokenizers": library_version("tokenizers"),
            },
            normalisation=self._images.normalisation,
            crop=self._images.crop,
            attention=model.config._attn_implementation,
        )
        self._context = self.longest_text(model.config)

    @classmethod
    def classes(cls, folder: Path) -> Classes:
        """Return the classes of transformers that read a folder."""
        return Classes(cls.model_class, cls.processor_class)

    @classmethod
    def architecture(cls, folder: Path) -> torch.nn.Module:
        """Return the model of a folder, built without numbers."""
        ready_libraries()
        import transformers

        return architecture_of(getattr(transformers, cls.classes(folder).model), folder)

    @classmethod
    def token_counter(cls, folder: Path) -> TokenCounter:
        """Return how the texts of a folder's model are counted; no weights are read."""
        ready_libraries()
        import transformers

        with loading("the tokenizer of this checkpoint could not be read", where=folder, expected="a tokenizer"):
            tokenizer = pretrained(transformers.AutoTokenizer, folder)
            config = pretrained(transformers.AutoConfig, folder)
        return TokenCounter(lambda text: tokenizer([text])["input_ids"][0], cls.longest_text(config), cuts=False)

    def prepare(self, image: Image) -> torch.Tensor:
        """Apply the checkpoint's own image processor to an RGB image, up to its rescaling or normalisation."""
        return self._images.prepare(image)

    def _image_processor(self, joined: Any, folder: Path) -> ImageProcessor:
        return ImageProcessor(joined, folder=folder, backend=self.image_backend)

    def _load(self, files: CheckpointFiles) -> tuple[Any, Any, Any]:
        """Return the model, the tokenizer, and the processor that joins it to the image processor."""
        import transformers

        model_class, processor_class = self.classes(files.folder)
        expected = f"a checkpoint of {model_class} with its image processor and tokenizer"
        with loading("transformers could not load this checkpoint", where=files.folder, expected=expected):
            model = whole_model(
                getattr(transformers, model_class),
                files.folder,
                dtype="float32",
                weights=files.weights[0],
                of=model_class,
                may_be_left=lambda name: name.startswith(self.other_heads),
                key_mapping=self.renamed or None,
            )
            tokenizer = pretrained(transformers.AutoTokenizer, files.folder)
            images = getattr(transformers, self.image_processor_class)
            options = {"backend": self.image_backend} if self.image_processor_class == "AutoImageProcessor" else {}
            image_processor = pretrained(images, files.folder, **options)
            joined = getattr(transformers, processor_class)(image_processor=image_processor, tokenizer=tokenizer)
        return model, tokenizer, joined

    @classmethod
    def longest_text(cls, config: Any) -> int:
        """Return how many tokens a text may have."""
        return int(config.text_config.max_position_embeddings)

    def _tokens(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return the tokenizer's tensors, (b, n), on the device; n does not depend on the other texts.

        Raises
        ------
        EncodingError
            If a text is longer than the model takes: it is not cut short in silence. Also if the tokenizer pads on
            the left where the text tower reads what it returns at a place that counts from the left.
        """
        if self._tokenizer.padding_side != "right" and not self.left_padding:
            raise EncodingError(
                "this checkpoint's tokenizer pads on the left, and its text tower would read the padding",
                where="tokenizer_config.json",
                found=f"padding_side: {self._tokenizer.padding_side}",
                expected="padding_side: right",
            )
        longest = self._require_room(texts)
        width = max(min(self.padded_to or MOST_PADDED, self._context), longest)
        padded = self._tokenizer(list(texts), padding="max_length", max_length=width, return_tensors="pt")
        return {name: tensor.to(self.device) for name, tensor in padded.items()}

    def _unpadded_ids(self, text: str) -> torch.Tensor:
        """Return the (1, n) tokens of one text on the device; raises EncodingError if it is too long."""
        self._require_room([text])
        ids: torch.Tensor = self._tokenizer([text], return_tensors="pt")["input_ids"]
        return ids.to(self.device)

    def too_long(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the texts that are longer than this encoder takes -> their tokens."""
        return {text: tokens for text, tokens in zip(texts, self._lengths(texts)) if tokens > self._context}

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._tokenizer(list(texts))["input_ids"]]

    def _require_room(self, texts: Sequence[str]) -> int:
        """Return the number of tokens of the longest text; raises EncodingError if it is too long."""
        lengths = self._lengths(texts)
        longest = int(np.argmax(lengths))
        if lengths[longest] > self._context:
            raise too_long_error(texts[longest], f"{lengths[longest]} tokens", f"at most {self._context}")
        return lengths[longest]
