"""The open_clip family: CLIP and its relatives, from a folder on disk, safetensors only."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plumbline.checkpoints.addresses import OPEN_CLIP_CONFIG
from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.folders import (
    Also,
    CheckpointFiles,
    FolderContents,
    model_files,
    no_safetensors,
    noting,
    read_configuration,
    refuse_code,
    require_files,
    require_modest,
)
from plumbline.checkpoints.loading import (
    ROOM,
    built_without_numbers,
    loading,
    memory_limited,
    names_in,
    ready_libraries,
    weights_limited,
)
from plumbline.encoders.encoder import Crop
from plumbline.encoders.text_lengths import TokenCounter
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


# The folder: the one weights file that is loaded, and nothing from anywhere else.

_OWN_NAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
"""What open_clip calls its weights, as it prefers them; a single file may have any name."""

# How texts are cleaned, which end token is dropped, and which language they are in. Others of open_clip's two
# tokenizers open files outside the folder, draw at random what is cut, or go on to transformers as they are.
_TOKENIZER_OPTIONS = frozenset({"clean", "strip_sep_token", "language"})


_TOKENIZER = (
    ("tokenizer.json",), ("tokenizer.model",), ("spiece.model",), ("sentencepiece.bpe.model",), ("vocab.txt",),
    ("vocab.json", "merges.txt"),
)  # fmt: skip


def open_clip_contents(folder: Path, of: str, *, also: Also | None = None) -> FolderContents:
    """Return what decides an open_clip checkpoint.

    Parameters
    ----------
    of : str
        Whose checkpoint it is, such as "encoder `clip`", for messages.
    also : callable, optional
        See `Also`.

    Raises
    ------
    CheckpointError
        If it has no safetensors weights or several, open_clip would load another file than that one, or the
        configuration asks for parts that are not on disk or for code of its own.
    """
    wrong: list[CheckpointError] = []
    weights: tuple[Path, ...] = ()
    text_folder = None
    with noting(wrong):
        weights = (_open_clip_weights(folder, of),)
    refused: list[CheckpointError] = []
    with noting(refused):
        require_modest(folder / OPEN_CLIP_CONFIG)
    with noting(refused):
        text_folder = _text_folder(folder)
    with noting(refused):
        if _part(read_configuration(folder / OPEN_CLIP_CONFIG), "model_cfg", "text_cfg").get("hf_tokenizer_name"):
            # open_clip takes this tokenizer from the checkpoint's own folder, whatever the name.
            refuse_code(folder)
            with noting(wrong):
                require_files(folder, _TOKENIZER, lacking=f"the checkpoint of {of} has no files of a tokenizer")
    wrong.extend(refused)
    if also is not None and not refused:  # it may build the model that the settings say
        with noting(wrong):
            also(weights)
    if wrong:
        raise CheckpointError.all_of(wrong)
    deciding = {p.name: p for p in (*weights, *model_files(folder))}
    if text_folder is not None:
        deciding |= {f"hf_model_name/{p.name}": p for p in model_files(text_folder)}
    return FolderContents(weights, deciding)


def _open_clip_weights(folder: Path, of: str) -> Path:
    candidates = sorted(p for p in folder.glob("*.safetensors") if p.is_file())
    if not candidates:
        raise no_safetensors(folder, of, expected=_OWN_NAMES[0])
    preferred = [folder / name for name in _OWN_NAMES if folder / name in candidates]
    if not preferred and len(candidates) > 1:
        raise CheckpointError(
            f"the checkpoint of {of} has several weights, and none is named as open_clip names its own",
            where=folder,
            found=", ".join(p.name for p in candidates),
            expected=f"one of {' and '.join(_OWN_NAMES)}, or a single safetensors file",
            hint="keep one file, or rename the one to audit",
        )
    return (preferred or candidates)[0]


def _text_folder(folder: Path) -> Path | None:
    """Refuse a configuration that would download or run something; return the folder of its text model, if any."""
    content = read_configuration(folder / OPEN_CLIP_CONFIG)
    text, vision = (_part(content, "model_cfg", key) for key in ("text_cfg", "vision_cfg"))
    name, timm = text.get("hf_model_name"), str(vision.get("timm_model_name"))
    # A relative name would be looked for from where the process happens to run.
    local = not name or (Path(str(name)).is_absolute() and Path(str(name)).is_dir())
    unknown = sorted(_part(text, "tokenizer_kwargs").keys() - _TOKENIZER_OPTIONS)
    parts = {
        "text_cfg.hf_model_name": None if local else name,
        "vision_cfg.timm_model_name": timm if ":" in timm else None,
        "text_cfg.tokenizer_kwargs": ", ".join(unknown) or None,
    }
    for key, part in parts.items():
        if part is not None:
            raise CheckpointError(
                "this checkpoint needs parts that are not in its folder, and nothing is downloaded in a run",
                where=folder / OPEN_CLIP_CONFIG,
                found=f"model_cfg.{key}: {part}",
                expected="an architecture of open_clip or timm; for the text model the absolute path of a folder on "
                f"disk; of the tokenizer's options {', '.join(sorted(_TOKENIZER_OPTIONS))}",
            )
    if name:
        refuse_code(Path(str(name)))
    return Path(str(name)) if name else None


def _part(content: Any, *keys: str) -> dict[str, Any]:
    """Return a nested mapping, empty where the file has something else: open_clip says what it lacks."""
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


# The encoder.


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
        If open_clip cannot load it, or would load another file than the digested one; random weights are never
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
            processor={"image": open_clip.get_model_preprocess_cfg(model), "text": type(self._tokenizer).__name__},
            normalisation=normalisation,
            crop=_simple_crop(self._to_grey_levels),
        )
        self.logit_scale = float(model.logit_scale.exp().item())
        # Of a model that was trained with a sigmoid, as SigLIP; see DualTowers of dual_encoder.py.
        bias = getattr(model, "logit_bias", None)
        self.logit_bias = 0.0 if bias is None else float(bias.item())
        self.width = int(self.embed_texts(["a photo"]).shape[1])
        self._compile((model.visual, model.text if hasattr(model, "text") else model.transformer))

    @classmethod
    def architecture(cls, folder: Path) -> torch.nn.Module:
        """Return the model of a folder, built without numbers."""
        ready_libraries()
        import open_clip

        with _without_warnings():
            return built_without_numbers(
                lambda: open_clip.create_model(
                    f"local-dir:{folder}", load_weights=False, pretrained_text=False, device="meta"
                )
            )

    @classmethod
    def token_counter(cls, folder: Path) -> TokenCounter:
        """Return how the texts of a folder's model are counted; no weights are read. open_clip cuts longer ones."""
        ready_libraries()
        import open_clip

        expected = "a tokenizer"
        with (
            loading("the tokenizer of this checkpoint could not be read", where=folder, expected=expected),
            memory_limited(ROOM),
        ):
            tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
        inner = getattr(tokenizer, "tokenizer", None)

        def tokens(text: str) -> list[int]:
            ids: list[int] = inner(text)["input_ids"] if inner is not None else [0, *tokenizer.encode(text), 0]
            return ids

        return TokenCounter(tokens, int(tokenizer.context_length), cuts=True)

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
        start = getattr(self._tokenizer, "sot_token_id", None)
        inner = getattr(self._tokenizer, "tokenizer", None)
        return start, getattr(inner, "bos_token_id", None), getattr(inner, "cls_token_id", None)

    def _token_layer(self) -> Any:
        text = getattr(self._model, "text", self._model)
        if hasattr(text, "token_embedding"):
            return text.token_embedding
        return text.transformer.get_input_embeddings()


def _require_bias(model: Any, weights: Path) -> None:
    """Refuse weights without the bias of logits that the configuration asks for: open_clip would take 0 for it."""
    if getattr(model, "logit_bias", None) is not None and "logit_bias" not in names_in(weights):
        raise CheckpointError(
            "the weights lack `logit_bias`, which the configuration asks for; open_clip would go on with 0",
            where=weights,
            found="no weight of this name",
            expected="the weights that were trained with `init_logit_bias`, or a configuration without it",
        )


def _load(files: CheckpointFiles) -> tuple[Any, Any, Any]:
    """Return the model, its evaluation transform and its tokenizer, from the digested file alone."""
    import open_clip

    address = f"local-dir:{files.folder}"
    expected = "open_clip_config.json, safetensors weights and, if the config names one, a tokenizer"
    # The file that was digested is loaded by name, whatever else open_clip would choose in the folder.
    with (
        _without_warnings(),
        loading("open_clip could not load this checkpoint", where=files.folder, expected=expected),
    ):
        with weights_limited(files.weights):
            model, _, transform = open_clip.create_model_and_transforms(
                address, precision="fp32", load_weights=False, pretrained_text=False
            )
            _require_bias(model, files.weights[0])
            open_clip.load_checkpoint(model, str(files.weights[0]))
        with memory_limited(ROOM):
            return model, transform, open_clip.get_tokenizer(address)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Have open_clip not warn of random weights: those of the file come afterwards, or none are wanted."""
    root = logging.getLogger()
    root.addFilter(_without_random_weights)
    try:
        yield
    finally:
        root.removeFilter(_without_random_weights)


def _without_random_weights(record: logging.LogRecord) -> bool:
    return "initialized randomly" not in record.getMessage()


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
