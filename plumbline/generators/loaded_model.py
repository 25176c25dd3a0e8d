"""Loading a generative model of transformers from its folder, with settings that its files alone decide."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NamedTuple

from plumbline.checkpoints.device import Placement
from plumbline.checkpoints.loading import clone_weights, loading, pretrained, ready_libraries, whole_model
from plumbline.digests import digest_json
from plumbline.encoders.transformers_encoder import ImageProcessor
from plumbline.errors import ConfigError
from plumbline.generators.families import GENERATOR_FAMILIES, IMAGE_TEXT
from plumbline.generators.folders import ATTENTION, GeneratorFiles, attention_of, class_of_model
from plumbline.generators.prompt_format import TURN_ENDS, Conversation, format_of
from plumbline.images.decoding import DECODING_VERSION
from plumbline.version import library_version

# What older versions of transformers saved beside the weights, and newer ones compute.
_COMPUTED = ("position_ids", "rotary_emb.inv_freq")
_DTYPES = ("float32", "bfloat16", "float16")


def load_model(files: GeneratorFiles, placement: Placement) -> Any:
    """Return the model on its device, in evaluation mode, in the number type of the placement.

    Raises
    ------
    CheckpointError
        If transformers cannot load it, or a weight of the model is not in the files or one of the files not in the
        model.
    ConfigError
        If the placement names another number type than float32, bfloat16 and float16.
    """
    if placement.dtype not in _DTYPES:
        raise ConfigError("models cannot run in this number type", found=placement.dtype, expected=", ".join(_DTYPES))
    ready_libraries()
    import transformers

    model_class = class_of_model(files.family, files.model_type)
    with _loading(files, f"a checkpoint of {model_class}"):
        model = whole_model(
            getattr(transformers, model_class),
            files.folder,
            dtype=placement.dtype,
            weights=files.folder,
            of=model_class,
            may_be_left=lambda name: name.endswith(_COMPUTED),
            attention=attention_of(files.family),
        )
    model = model.to(placement.device).eval().requires_grad_(False)
    if placement.device == "cpu":
        clone_weights(model)
    return model


def load_tokenizer(files: GeneratorFiles, subfolder: str = "") -> Any:
    """Return the tokenizer of a checkpoint; raises CheckpointError if transformers cannot load it."""
    ready_libraries()
    import transformers

    with _loading(files, "a tokenizer"):
        return pretrained(transformers.AutoTokenizer, files.folder / subfolder)


def load_images(files: GeneratorFiles) -> ImageProcessor:
    """Return the checkpoint's own preprocessing of images, on PIL; raises CheckpointError if it cannot be loaded."""
    with _loading(files, "an image processor"):
        return ImageProcessor(_ImagesAlone(_image_processor(files)), folder=files.folder)


def _image_processor(files: GeneratorFiles) -> Any:
    ready_libraries()
    import transformers

    # The processors that run on torchvision give other pixels than those of the published results.
    return pretrained(transformers.AutoImageProcessor, files.folder, backend="pil")


def load_conversation(files: GeneratorFiles) -> Conversation:
    """Return the checkpoint's own processor of messages with images; raises CheckpointError if it cannot be loaded.

    Its images are prepared on PIL where transformers has that, else on torchvision.
    """
    ready_libraries()
    import transformers

    with _loading(files, "a processor of images and texts"):
        processor = pretrained(transformers.AutoProcessor, files.folder)
        try:
            processor.image_processor = _image_processor(files)
        except (ImportError, ValueError):
            if getattr(processor, "image_processor", None) is None:
                raise
    return Conversation(processor, files)


class Inputs(NamedTuple):
    """All that stands before a model.

    Attributes
    ----------
    tokenizer : transformers tokenizer
    prompts : PromptFormat or Conversation
    images : ImageProcessor or None
        None where prompts take the image, or there is none.
    """

    tokenizer: Any
    prompts: Any
    images: Any


def load_inputs(files: GeneratorFiles) -> Inputs:
    """Return all that stands before the model.

    Raises
    ------
    CheckpointError
        If tokenizer, chat template or image processor cannot be loaded.
    """
    if files.family == IMAGE_TEXT:
        conversation = load_conversation(files)
        return Inputs(conversation.tokenizer, conversation, None)
    tokenizer = load_tokenizer(files)
    return Inputs(tokenizer, format_of(files, tokenizer), load_images(files) if files.sees else None)


def _loading(files: GeneratorFiles, expected: str) -> AbstractContextManager[None]:
    what = f"transformers could not load the checkpoint of model `{files.name}`"
    return loading(what, where=files.folder, expected=expected)


class _ImagesAlone:
    """The part of a joined processor that `ImageProcessor` reads: these families change no option of the images."""

    def __init__(self, image_processor: Any) -> None:
        self.image_processor = image_processor

    def __call__(self, **options: Any) -> Any:
        return self.image_processor(**options)


def stop_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that end an answer: the checkpoint's, the tokenizer's, and the end of a turn."""
    named = getattr(model.generation_config, "eos_token_id", None)
    tokens = set(named if isinstance(named, list) else [named]) | {tokenizer.eos_token_id}
    vocabulary = tokenizer.get_vocab()
    tokens |= {vocabulary.get(token) for token in TURN_ENDS}
    return tuple(sorted(int(token) for token in tokens if token is not None))


def identity_of(files: GeneratorFiles, placement: Placement, inputs: Inputs, *, stops: tuple[int, ...]) -> str:
    """Return the digest of everything besides the question that answers depend on."""
    parts: dict[str, Any] = {
        "weights": files.digest,
        "family": files.family,
        "adapter": GENERATOR_FAMILIES[files.family].version,
        "prompts": inputs.prompts.settings(),
        "stops": stops,
        "dtype": placement.dtype,
        "device": placement.device_kind,
        "attention": ATTENTION,
        "libraries": library_versions(),
    }
    if files.sees:
        parts["decoder"] = f"pillow-{library_version('pillow')}/plumbline-{DECODING_VERSION}"
    if inputs.images is not None:
        parts["images"] = inputs.images.settings()
    return digest_json(parts)


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide what a model answers."""
    return {name: library_version(name).split("+")[0] for name in ("transformers", "tokenizers", "torch")}


# The identity from a model's files alone: a plan must not wait for billions of weights.


def identity_from_files(files: GeneratorFiles, placement: Placement) -> str:
    """Return the `identity` that the backend of these files has when it is loaded; no weights are read.

    Raises
    ------
    CheckpointError
        If tokenizer, chat template or image processor cannot be loaded.
    """
    inputs = load_inputs(files)
    model = SimpleNamespace(generation_config=_generation_config(files))
    return identity_of(files, placement, inputs, stops=stop_tokens(model, inputs.tokenizer))


def _generation_config(files: GeneratorFiles) -> Any:
    """Return what a loaded model would have: the checkpoint's own file, or what its configuration implies."""
    ready_libraries()
    import transformers

    try:
        return pretrained(transformers.GenerationConfig, files.folder)
    except OSError:
        config = pretrained(transformers.AutoConfig, files.folder)
        return transformers.GenerationConfig.from_model_config(config)
