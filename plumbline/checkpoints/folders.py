"""Checkpoint folders: which files decide what a checkpoint computes, their digests, and what no folder may ask for.

One mechanism for encoders, generators and scorers: an address leads to a folder (`addresses`), a folder has contents
(`transformers_contents`; open_clip's are with its adapter), and these have digests (`CheckpointFiles.read`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from plumbline.catalog.files import text_within
from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG
from plumbline.digests import digest_file, digest_json
from plumbline.errors import CheckpointError, examples

TRANSFORMERS_WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SHARDS = "shard-*-model-*.safetensors"
IMAGE_PROCESSOR = (("preprocessor_config.json",), ("processor_config.json",))
"""Either holds the settings of an image processor."""

TOKENIZER = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
"""Sets of files of which one must be whole."""

# Beside the weights these decide what a checkpoint computes; read-me files and licences do not.
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.bpe", "*.codes", "*.spm", "*.tiktoken", "*.tokenizer")
_TEMPLATES = ("*.jinja", "*/*.jinja")
CONVERTED_NOTE = "converted.json"
"""What a folder of converted weights was made of: names and sha256, before and after."""

MOST_SETTINGS, _MOST_OF_A_TOKENIZER = 16 << 20, 64 << 20
"""Bytes of a file of settings, and of one of a tokenizer; Gemma's largest is half of that."""

NOTES = ("training.json", "fetched.json", CONVERTED_NOTE)
"""Files that Plumbline puts into folders of checkpoints; of a repository they are not taken."""
# What transformers reads of a folder beside weights and vocabularies.
_AUDIO_TOKENIZER = "audio_tokenizer_config.json"  # all that it says is which other checkpoint to load
_SPECIAL_TOKENS = "special_tokens_map.json"
_SETTINGS = (
    TRANSFORMERS_CONFIG, "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
    "tokenizer_config.json", _SPECIAL_TOKENS,
)  # fmt: skip
# Any of these would have transformers run what it finds, fetch it, or load something else than the digested weights.
_CODE, _ATTENTION, _EXPERTS = "code of its own", "attention of its own", "experts of its own"
_REFUSED = {
    "auto_map": _CODE,
    "custom_pipelines": _CODE,
    "trust_remote_code": _CODE,
    "transformers_weights": "weights in another file",
    "configuration_files": "another configuration",
    "fast_tokenizer_files": "another tokenizer",
    "gguf_file": "another tokenizer",
    "init_inputs": "another tokenizer",
    "mecab_option": "another tokenizer",
    "audio_tokenizer": "another checkpoint",
    "quantization_config": "a quantiser",
    "attn_implementation": _ATTENTION,
    "_attn_implementation": _ATTENTION,
    "_attn_implementation_internal": _ATTENTION,
    "experts_implementation": _EXPERTS,
    "_experts_implementation": _EXPERTS,
    "_experts_implementation_internal": _EXPERTS,
}
# A tokenizer, or a processor, is given its settings as arguments, and opens the files that they name. Its files are
# those of its folder, by their own names.
_NAMES_FILES = ("_file", "_files", "_path", "_dir")
_FONT = "font"  # of a video processor that writes the time into the picture
_VOCABULARIES = ("vocab", "merges")  # lists or dictionaries of tokens; a text is the path of a file
# Left by older releases of transformers, often with paths of another machine. The first are never opened, or replaced
# by the folder's own files; so are the second, but by tokenizers that name no vocabulary, such as Gemma's.
_LEFT_OVER = (
    "tokenizer_file", "special_tokens_map_file", "added_tokens_file", "tokenizer_config_file", "chat_template_file",
)  # fmt: skip
_LEFT_OVER_VOCABULARIES = ("vocab_file", "merges_file")
# Where a class is named, transformers takes any of its own, and builds a model too, of whatever size. Those that begin
# with Auto and Rag open others.
_TOKENIZERS = re.compile(r"(?!Auto|Rag)\w*(Tokenizer(Fast|Legacy)?|TokenizersBackend|PythonBackend|CommonBackend)")
_PROCESSORS = re.compile(r"(?!Auto)\w*(Processor(Fast|Pil)?|FeatureExtractor)")
_PROCESSOR_KEYS = (
    "processor_class", "image_processor_type", "video_processor_type", "audio_processor_type", "feature_extractor_type",
)  # fmt: skip
_CLASSES_OF = {"tokenizer_class": _TOKENIZERS} | dict.fromkeys(_PROCESSOR_KEYS, _PROCESSORS)
_OF_TIMM = ("model_args", "backbone_kwargs")  # what timm's `create_model` is given, paths of weights among it
# A name of a timm model may begin with where another configuration of it lies. These keys hold such names today.
_NAMES_OF_TIMM = ("architecture", "backbone")
_SOURCES_OF_TIMM = ("local-dir:", "hf-hub:", "hf_hub:")
_LOADS = ("checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir", "file", "url")
_LAYERS = (
    "layers", "num_hidden_layers", "num_layers", "n_layer", "encoder_layers", "decoder_layers", "depth", "depths",
    "num_mtp_layers", "num_residual_layers", "num_nextn_predict_layers",
)  # fmt: skip
_CLASSES = ("num_labels", "num_classes", "id2label", "label2id")  # each gets a name, in two dictionaries
_SIDES = ("height", "width", "image_size", "size", "crop_size", "image_grid_pinpoints")
_TOKENS = ("image_seq_length", "image_seq_len", "num_image_tokens", "num_additional_image_tokens", "num_query_tokens")
# What the processors of Qwen and its like call edges are numbers of pixels; those of all others are sides.
_PIXELS = re.compile("qwen|glm|paddleocr|hunyuan|compass|minimax|ernie|videollama|cosmos", re.IGNORECASE)
_EDGES = ("shortest_edge", "longest_edge", "min_pixels", "max_pixels")
_PATCHES = ("max_num_patches", "min_num_patches", "max_patches", "min_patches", "total_mask_patches")
_TILES = ("max_image_tiles", "max_num_tiles", "max_tiles", "min_tiles", "max_crops", "max_slice_nums")
LARGEST_SIDE, _MOST_PIXELS = 8_192, 1 << 27
_MOST = (
    dict.fromkeys(_LAYERS, 1_000)
    | dict.fromkeys(_CLASSES, 100_000)
    | dict.fromkeys(_SIDES, LARGEST_SIDE)
    | dict.fromkeys((*_TOKENS, *_PATCHES), 16_384)
    | dict.fromkeys(_TILES, 256)
    | {"context_length": 1_024}  # open_clip pads every text to it, and has a mask of its square
    | dict.fromkeys(_EDGES, _MOST_PIXELS)
)
"""Numbers of a configuration that decide how much memory is taken before a weight is read -> the largest taken."""
# What published configurations write for "none".
_NOTHING: tuple[Any, ...] = (None, False, {}, [])

PLAIN_ATTENTION = ("eager", "sdpa")
"""Names of attention that need nothing but torch; any other may have a kernel fetched from the hub."""

TRANSFORMERS_ATTENTION = (
    *PLAIN_ATTENTION, "flash_attention_2", "flash_attention_3", "flash_attention_4", "flex_attention", "paged|eager"
)  # fmt: skip
"""All that transformers 5 has itself; harmless only where the loader says another one, which then counts."""


Also = Callable[[Sequence[Path]], None]
"""What else is asked of a folder, given its weights, none where they are absent; raises CheckpointError."""


class FolderContents(NamedTuple):
    """The weights of a checkpoint folder, and everything that decides what the checkpoint computes.

    Attributes
    ----------
    weights : tuple of Path
        The safetensors files that are loaded: one, or the parts of a large model.
    deciding : dict of name to Path
        Weights included.
    """

    weights: tuple[Path, ...]
    deciding: dict[str, Path]


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint on disk, with the digests that were read before it is loaded.

    Attributes
    ----------
    name : str
        Id in the audit file.
    folder : Path
    weights : tuple of Path
        The safetensors files that are loaded, and no others.
    weights_sha256 : str
        Of the one weights file, as `sha256sum` prints it; of several, the digest of their names and sha256.
    digest : str
        Of every file that decides what the checkpoint computes: weights, configuration, tokenizer.
    family : str
        Name of the family whose adapter loads it.
    deciding : tuple of (str, str)
        Name and sha256 of each of these files.
    """

    name: str
    folder: Path
    weights: tuple[Path, ...]
    weights_sha256: str
    digest: str
    family: str
    deciding: tuple[tuple[str, str], ...]

    @property
    def version(self) -> str:
        """Return the version of the checkpoint: its content, and the family that reads it."""
        return digest_json([self.family, self.digest])

    @classmethod
    def read(cls, name: str, folder: Path, contents: FolderContents, family: str, **more: Any) -> Self:
        """Digest the contents of a folder."""
        shas = {file: file_digest(path) for file, path in contents.deciding.items()}
        weights = weights_digest({path.name: shas[path.name] for path in contents.weights})
        deciding = tuple(sorted(shas.items()))
        return cls(name, folder, contents.weights, weights, digest_json(shas), family, deciding, **more)


def weights_digest(parts: Mapping[str, str]) -> str:
    """Return the digest of weights, given name -> sha256: of one file its own, of several that of names and sha256."""
    return next(iter(parts.values())) if len(parts) == 1 else digest_json(parts)


_LARGE = 1 << 26


def file_digest(path: Path) -> str:
    """Return a file's sha256; a large one is read again only if it was written since this process read it.

    An audit asks for it with every slice, and the weights of a large model take minutes to read.
    """
    about = path.stat()
    if about.st_size < _LARGE:
        return digest_file(path)
    return _digest_of(path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)


@lru_cache(maxsize=256)
def _digest_of(path: Path, *_written: int) -> str:
    return digest_file(path)


def transformers_contents(
    folder: Path,
    of: str,
    *,
    tokenizer: Sequence[Sequence[str]] = TOKENIZER,
    image_processor: bool = True,
    parts: bool = False,
    subfolders: Sequence[str] = (),
    also: Also | None = None,
) -> FolderContents:
    """Return what decides a checkpoint of transformers.

    Parameters
    ----------
    of : str
        Whose checkpoint it is, such as "encoder `clip`", for messages.
    tokenizer : sequence of sets of files
        One of which must be whole.
    image_processor, parts : bool
        Whether it must have one; whether the weights may be in several files with an index.
    subfolders : sequence of str
        Folders below with a tokenizer that it must have; any other there counts too.
    also : callable, optional
        See `Also`.

    Raises
    ------
    CheckpointError
        If its weights are not `model.safetensors`, the image processor or a tokenizer is absent, or a configuration
        asks for code, weights, an attention or a quantisation of its own.
    """
    # Processors with several tokenizers have the others in folders below, whether or not the family needs one.
    below = {*subfolders, *(path.name for path in folder.glob("*tokenizer*") if path.is_dir())}
    folders = [folder, *(folder / name for name in sorted(below))]
    wrong: list[CheckpointError] = []
    weights: tuple[Path, ...] = ()
    for each in folders:
        with noting(wrong):
            # Which attention computes is said when the model is loaded, whatever the configuration names.
            refuse_code(each, attention=TRANSFORMERS_ATTENTION)
    modest = not wrong
    with noting(wrong):
        weights = _weights(folder, of, parts=parts)
    if also is not None and modest:  # it may build the model that the settings say
        with noting(wrong):
            also(weights)
    if image_processor:
        with noting(wrong):
            lacking = f"the checkpoint of {of} has no files of an image processor"
            require_files(folder, IMAGE_PROCESSOR, lacking=lacking)
    for each in (folder, *(folder / name for name in subfolders)):
        with noting(wrong):
            require_files(each, tokenizer, lacking=f"the checkpoint of {of} has no files of a tokenizer")
    if wrong:
        raise CheckpointError.all_of(wrong)
    files = [*weights, *(path for each in folders for path in model_files(each))]
    return FolderContents(weights, {path.relative_to(folder).as_posix(): path for path in files})


@contextmanager
def noting(wrong: list[CheckpointError]) -> Iterator[None]:
    """Go on after what is wrong with a checkpoint: all of it is told at once."""
    try:
        yield
    except CheckpointError as error:
        wrong.append(error)


def model_files(folder: Path) -> list[Path]:
    """Return configuration and tokenizer files of a folder, by name.

    Raises
    ------
    CheckpointError
        If one, or a chat template in the folder or one below, is larger than any is: libraries read it whole.
    """
    paths = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.name not in NOTES}
    found = sorted(path for path in paths if path.is_file())
    templates = [path for pattern in _TEMPLATES for path in folder.glob(pattern) if path.is_file()]
    limits = [*((path, _MOST_OF_A_TOKENIZER) for path in found), *((path, MOST_SETTINGS) for path in templates)]
    for path, most in limits:
        if (size := path.stat().st_size) > most:
            raise CheckpointError(
                "this file of a checkpoint is larger than any tokenizer, configuration or chat template",
                where=path,
                found=f"{size:,} bytes",
                expected=f"{most:,} at most",
            )
    return found


def read_configuration(path: Path) -> dict[str, Any]:
    """Return a JSON object of a checkpoint folder, empty where the file has something else than an object.

    Raises
    ------
    CheckpointError
        If it is not JSON, larger or nested more deeply than any configuration is, or no plain file.
    """
    try:
        content = json.loads(text_within(path, MOST_SETTINGS))
    except OSError as error:
        raise CheckpointError("this configuration cannot be read", where=path, found=error.strerror) from error
    except ValueError as error:
        raise CheckpointError("this configuration is not JSON", where=path, found=error) from error
    except RecursionError as error:
        raise CheckpointError(
            "this configuration is nested too deeply",
            where=path,
            found="hundreds of levels",
            expected="a JSON object of settings, a few levels deep",
            hint="check that this is the published file and not damaged",
        ) from error
    return content if isinstance(content, dict) else {}


def require_unchanged(name: str, before: str, now: str, *, where: object = None) -> None:
    """Refuse what was loaded of files that are no longer those that were digested, as while a training saves.

    Parameters
    ----------
    name : str
        Of the checkpoint in the audit file.
    before, now : str
        Digests before it was loaded, and after.

    Raises
    ------
    CheckpointError
    """
    if before != now:
        raise CheckpointError(
            f"the checkpoint of `{name}` was replaced while it was loading",
            where=where,
            found=f"digest {now[:16]}…",
            expected=f"digest {before[:16]}…",
            hint="run again once the file is complete",
        )


def refuse_code(folder: Path, *, attention: Sequence[str] = PLAIN_ATTENTION) -> None:
    """Refuse a folder whose settings would have transformers run, fetch or load what was not digested.

    Parameters
    ----------
    attention : sequence of str
        Names of attention that it may ask for.

    Raises
    ------
    CheckpointError
        With the file and the key, at whatever depth it lies; of a number too that no model of today needs.
    """
    if (folder / _AUDIO_TOKENIZER).is_file():
        raise CheckpointError(
            "this checkpoint asks for another checkpoint, a tokenizer of sounds, and only its own files are read",
            where=folder,
            found=_AUDIO_TOKENIZER,
            expected="a checkpoint of images and texts",
            hint=f"take {_AUDIO_TOKENIZER} out of a copy of the folder",
        )
    harmless = {_ATTENTION: attention, _EXPERTS: ("eager",)}
    for path in (folder / name for name in _SETTINGS):
        if not path.is_file():
            continue
        require_modest(path)
        for key, value in _pairs(read_configuration(path)):
            what = _REFUSED.get(key)
            if what is not None and value not in (*_NOTHING, *harmless.get(what, ())):
                raise CheckpointError(
                    f"this checkpoint asks for {what}, and only transformers' own classes are used",
                    where=path,
                    found=f"{key}: {value}",
                    expected="a checkpoint of one of transformers' own architectures, in plain float weights",
                )
            if key in _CLASSES_OF and value is not None and not _CLASSES_OF[key].fullmatch(str(value)):
                raise CheckpointError(
                    "this checkpoint names a class that is no tokenizer or processor",
                    where=path,
                    found=f"{key}: {value}",
                    expected="a class of tokenizers or of processors, such as CLIPTokenizer or CLIPImageProcessor",
                )
            if path.name != TRANSFORMERS_CONFIG and _names_a_file(
                key, value, folder, of_special_tokens=path.name == _SPECIAL_TOKENS
            ):
                raise CheckpointError(
                    "this checkpoint names a file of its tokenizer or processor, and only those of its folder are read",
                    where=path,
                    found=f"{key}: {value}",
                    expected="files in the folder of the checkpoint, under the names that transformers gives them",
                    hint=f"take `{key}` out of {path.name}",
                )
            loads = [name for name, of in _pairs(value) if name in _LOADS and of not in _NOTHING]
            elsewhere = str(value).lower().startswith(_SOURCES_OF_TIMM) or (key in _NAMES_OF_TIMM and ":" in str(value))
            if (key in _OF_TIMM and loads) or elsewhere:
                raise CheckpointError(
                    "this checkpoint asks for a model in another file, and only its own files are read",
                    where=path,
                    found=f"{key}: {', '.join(loads) or value}",
                    expected="arguments that say the architecture alone",
                )


def _names_a_file(key: str, value: Any, folder: Path, *, of_special_tokens: bool) -> bool:
    """Return whether a setting of a tokenizer or processor leads to a file that is found by no name of its own.

    Parameters
    ----------
    folder : Path
        Of the checkpoint: libraries look there, and in the folder where the command runs.
    of_special_tokens : bool
        Whether it is of the special tokens, which transformers reads last of all: nothing replaces what they say.
    """
    if isinstance(value, str) and (key in _VOCABULARIES or (of_special_tokens and key == "name_or_path")):
        return True
    if not of_special_tokens:
        if key in _LEFT_OVER or key.endswith("name_or_path"):
            return False
        if key in _LEFT_OVER_VOCABULARIES:
            return isinstance(value, str) and _is_file(value)
    texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
    if key.endswith(_NAMES_FILES) or key == _FONT:
        return bool(texts)
    return any(_is_file(folder / text) or (os.sep in text and _is_file(text)) for text in texts)


def _is_file(name: Path | str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a text too long for a path, such as a chat template
        return False


def edges_are_pixels(kind: str) -> bool:
    """Return whether an image processor of this class takes its edges as numbers of pixels, not as sides."""
    return _PIXELS.search(kind) is not None


def require_modest(path: Path) -> None:
    """Refuse a configuration that asks for more layers, classes or larger images than any model needs: for memory.

    Raises
    ------
    CheckpointError
        With the file and the key.
    """
    content = read_configuration(path)
    types = [str(value) for key, value in _pairs(content) if key in ("image_processor_type", "video_processor_type")]
    in_pixels = bool(types) and all(map(edges_are_pixels, types))
    for key, value in _pairs(content):
        most, size, shown = _MOST.get(key), value, f"{key}: {value}"
        if key in _CLASSES and isinstance(value, dict):
            size, shown = len(value), f"{key} of {len(value):,} classes"
        if key in ("shortest_edge", "longest_edge") and not in_pixels:
            most = LARGEST_SIDE
        if most is not None and any(number > most for number in _numbers(size)):
            raise CheckpointError(
                "this checkpoint asks for more than any model needs",
                where=path,
                found=shown,
                expected=f"{most:,} at most",
            )


def _numbers(value: Any) -> Iterator[int | float]:
    """Yield the numbers of a value: it, or those of its lists, however deep."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts.extend(part)
        elif isinstance(part, int | float) and not isinstance(part, bool):
            yield part


def _pairs(content: Any) -> Iterator[tuple[str, Any]]:
    """Return every key and value of a configuration: settings of a part may lie any number of levels down."""
    parts = [content]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield from part.items()
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)


def require_files(folder: Path, choices: Sequence[Sequence[str]], *, lacking: str) -> None:
    """Refuse a folder in which none of several sets of files is whole.

    Parameters
    ----------
    lacking : str
        What is wrong then, for the message.

    Raises
    ------
    CheckpointError
        With the files that are there, and each set.
    """
    if not any(all((folder / name).is_file() for name in names) for names in choices):
        raise CheckpointError(
            lacking,
            where=folder,
            found=", ".join(path.name for path in model_files(folder)) or "nothing",
            expected=" or ".join(" with ".join(names) for names in choices),
        )


def no_safetensors(folder: Path, of: str, *, expected: str) -> CheckpointError:
    """Return the error for a folder without safetensors weights; names what is there instead."""
    others = sorted(p.name for kind in ("*.bin", "*.pt", "*.pth", "*.h5") for p in folder.glob(kind))
    return CheckpointError(
        f"the checkpoint of {of} has no safetensors weights, and no other format is opened",
        where=folder,
        found=", ".join(others) or "no weights",
        expected=expected,
        hint="`plumbline fetch` converts a hub checkpoint that has only .bin weights" if others else None,
    )


def _weights(folder: Path, of: str, *, parts: bool) -> tuple[Path, ...]:
    """Return the files that transformers loads: the one file where there is one, else the parts of the index."""
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(
            "this checkpoint is an adapter, to be merged with weights that are elsewhere",
            where=folder,
            found="adapter_config.json",
            expected=f"merged weights in {TRANSFORMERS_WEIGHTS}",
        )
    if shards := sorted(path.name for path in folder.glob(_SHARDS)):
        raise CheckpointError(
            "this checkpoint has shards of a distributed training, and beside them any safetensors file is loaded",
            where=folder,
            found=examples(shards),
            expected=f"merged weights in {TRANSFORMERS_WEIGHTS}",
        )
    if (folder / TRANSFORMERS_WEIGHTS).is_file():
        return (folder / TRANSFORMERS_WEIGHTS,)
    if parts and (folder / INDEX).is_file():
        return _parts(folder, of)
    expected = f"{TRANSFORMERS_WEIGHTS}, or its parts with {INDEX}" if parts else f"one file {TRANSFORMERS_WEIGHTS}"
    names = sorted(p.name for p in folder.glob("*.safetensors") if p.is_file())
    if not names:
        raise no_safetensors(folder, of, expected=expected)
    raise CheckpointError(
        f"the checkpoint of {of} has "
        + ("several weights, and none" if len(names) > 1 else "weights, but not")
        + " under the name that transformers loads",
        where=folder,
        found=", ".join(names),
        expected=expected,
        hint="merge the parts, or rename the one to audit",
    )


def _parts(folder: Path, of: str) -> tuple[Path, ...]:
    listed = read_configuration(folder / INDEX).get("weight_map")
    parts = sorted({str(part) for part in listed.values()}) if isinstance(listed, dict) else []
    # Parts lie in this folder: an index that points elsewhere would load what nobody digested.
    odd = [part for part in parts if Path(part).name != part or not part.endswith(".safetensors")]
    if odd or not parts:
        raise CheckpointError(
            f"the index of the weights of {of} does not name safetensors files of its folder",
            where=folder / INDEX,
            found=examples(odd) or "no weight_map",
            expected="names such as model-00001-of-00003.safetensors",
        )
    absent = [part for part in parts if not (folder / part).is_file()]
    if absent:
        raise CheckpointError(
            f"{len(absent)} of {len(parts)} parts of the weights of {of} are not on this disk",
            where=folder,
            found=", ".join(p.name for p in sorted(folder.glob("*.safetensors"))) or "none",
            expected=", ".join(parts),
            hint="run `plumbline fetch` again",
        )
    return tuple(folder / part for part in parts)


def require_complete(path: Path) -> None:
    """Refuse a safetensors file that is not as long as its header says: a copy that is still under way, for example.

    The tensors are not read.

    Raises
    ------
    CheckpointError
        With its length and that which it should have.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass
    except SafetensorError as error:
        length, of_header = path.stat().st_size, _length_by_header(path)
        if of_header is not None and length >= of_header:
            raise CheckpointError(
                "these are no safetensors", where=path, found=str(error), expected="a file as safetensors writes it"
            ) from error
        raise CheckpointError(
            "the weights are not complete",
            where=path,
            found=f"{length} bytes: {error}",
            expected="a whole header" if of_header is None else f"{of_header} bytes, as its header says",
            hint="wait until the copy is done; if it is done, these are no safetensors",
        ) from error


_LONGEST_HEADER = 16 << 20
"""In bytes: the format allows 100 MB, those of published models are of a few, and Python takes 30 times as much."""


def _length_by_header(path: Path) -> int | None:
    """Return how many bytes a safetensors file has by its header; None where that is cut off, or none."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = file.read(min(length, _LONGEST_HEADER))
    try:
        ends = [tensor["data_offsets"][1] for name, tensor in json.loads(header).items() if name != "__metadata__"]
        return 8 + length + int(max(ends, default=0))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


# --- Families: checkpoints that one adapter loads. Encoders and generators have a table of them each.


@dataclass(frozen=True)
class Family:
    """Checkpoints that one adapter loads.

    Attributes
    ----------
    name : str
        As the audit file says it.
    title : str
        For people.
    model_types : tuple of str
        Values of `model_type` in `config.json` that mean this family.
    adapter : str
        `module:Class` below the package of its table, called with (files, placement).
    version : int
        Of the adapter, as part of every model's identity. Raise it with any change of Plumbline's own code by which
        the same files give other results (what is read of the model, tokens, pixels, how tokens are drawn): results of
        the earlier code are then left aside. Versions of libraries are seen by themselves.
    """

    name: str
    title: str
    model_types: tuple[str, ...]
    adapter: str
    version: int


FamilyT = TypeVar("FamilyT", bound=Family)


def family_of_model_type(families: Mapping[str, FamilyT], model_type: str) -> FamilyT | None:
    """Return the family that a `model_type` of `config.json` means, by the last row that names it; or None."""
    return next((family for family in [*families.values()][::-1] if model_type in family.model_types), None)


def family_of_folder(
    families: Mapping[str, FamilyT], folder: Path, of: str, *, expected: str = "", hint: str | None = None
) -> FamilyT:
    """Return the family of a folder of transformers.

    Parameters
    ----------
    of : str
        Whose checkpoint it is, for the message.
    expected, hint : str, optional
        What else it could be, and what to do instead.

    Raises
    ------
    CheckpointError
        With the families that are known.
    """
    model_type = str(read_configuration(folder / TRANSFORMERS_CONFIG).get("model_type"))
    if (family := family_of_model_type(families, model_type)) is not None:
        return family
    known = [model_type for family in families.values() for model_type in family.model_types]
    raise CheckpointError(
        f"the checkpoint of {of} is of no family that can be audited",
        where=folder / TRANSFORMERS_CONFIG,
        found=f"model_type: {model_type}",
        expected=f"one of {', '.join(known)}{expected}",
        hint=hint,
    )
