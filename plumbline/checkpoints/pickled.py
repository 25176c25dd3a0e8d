"""Checkpoints on disk whose weights are pickles: `.bin` folders, and what open_clip's trainer writes.

Each is converted once, into a folder of its own that the libraries read; the original is never changed.
"""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from plumbline.catalog.files import text_within
from plumbline.checkpoints.addresses import OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG
from plumbline.checkpoints.conversion import SUFFIXES, convert_to_safetensors
from plumbline.checkpoints.folders import (
    CONVERTED_NOTE,
    INDEX,
    MOST_SETTINGS,
    TRANSFORMERS_WEIGHTS,
    file_digest,
    model_files,
    read_configuration,
)
from plumbline.checkpoints.loading import ready_libraries
from plumbline.digests import digest_json
from plumbline.errors import CheckpointError, examples, suggestion

PARAMETERS = "params.txt"
"""What open_clip's trainer writes of its settings, one folder above the checkpoints."""

CONVERTED = "converted"
"""Folder of converted checkpoints, below that of fetched ones."""

_OPEN_CLIP_WEIGHTS = "open_clip_model.safetensors"
_BIN, _BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def readable_folder(place: Path, of: str, *, kept: Path, model: str | None = None, project: Path = Path()) -> Path:
    """Return the folder of a checkpoint that the libraries read: `place`, or what was converted from it.

    Parameters
    ----------
    place : Path
        A folder, or a file of open_clip's trainer.
    of : str
        Whose checkpoint it is, such as "encoder `clip`", for messages.
    kept : Path
        Where converted folders are kept, each by the content that it was made of.
    model : str, optional
        Name of the architecture in open_clip, or the JSON file that describes one of your own, for what its trainer
        wrote; by default the name in `params.txt` beside it.
    project : Path
        Folder in which a relative path of `model` starts.

    Raises
    ------
    CheckpointError
        If nothing says which architecture a trainer's checkpoint has, the file of one's own is none, or the pickle
        cannot be converted.
    """
    try:
        trained = _trained(place, of)
    except PermissionError as error:
        raise CheckpointError(
            f"this user may not read the checkpoint of {of}",
            where=error.filename or place,
            hint="make it readable for the user who runs this",
        ) from error
    if trained is not None:
        return _converted([trained], _open_clip_files(trained, of, model, project), kept)
    if model is not None:
        raise CheckpointError(
            f"`model` says the architecture of a checkpoint of open_clip's trainer, which that of {of} is not",
            where=place,
            found=f"model: {model}",
            expected="an address of one file such as checkpoints/epoch_1.pt",
            hint="leave `model` out",
        )
    if not place.is_dir() or any(place.glob("*.safetensors")):
        return place
    weights = _bin_weights(place)
    return _converted(weights, _beside(place), kept) if weights else place


def _beside(folder: Path) -> dict[str, Path | bytes]:
    """Return what a folder has beside its weights: chat templates and tokenizers one level down too."""
    folders = [folder, *(below for below in sorted(folder.iterdir()) if below.is_dir())]
    paths = [path for each in folders for path in (*model_files(each), *filter(Path.is_file, each.glob("*.jinja")))]
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _trained(place: Path, of: str) -> Path | None:
    """Return the file of a trainer that a place is or holds."""
    if place.is_file() and place.suffix in SUFFIXES:
        return place
    configured = any((place / name).is_file() for name in (OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG))
    if configured or not place.is_dir() or any(place.glob("*.safetensors")):
        return None
    files = sorted(path for path in place.glob("*") if path.suffix in SUFFIXES and path.is_file())
    if len(files) > 1:
        raise CheckpointError(
            f"the folder of {of} holds several checkpoints of a training",
            where=place,
            found=", ".join(path.name for path in files),
            expected="the address of one of them, such as local-dir:PATH/epoch_1.pt",
        )
    return files[0] if files else None


def _bin_weights(folder: Path) -> list[Path]:
    if (folder / OPEN_CLIP_CONFIG).is_file():
        files = sorted(path for path in folder.glob("open_clip*") if path.suffix in SUFFIXES and path.is_file())
        return files[:1]
    if (folder / _BIN).is_file():
        return [folder / _BIN]
    if not (folder / _BIN_INDEX).is_file():
        return []
    listed = read_configuration(folder / _BIN_INDEX).get("weight_map")
    names = sorted({str(name) for name in listed.values()}) if isinstance(listed, dict) else []
    odd = [name for name in names if Path(name).name != name or not (folder / name).is_file()]
    if odd or not names:
        raise CheckpointError(
            "the index of these weights names files that are not in its folder",
            where=folder / _BIN_INDEX,
            found=examples(odd) or "no weight_map",
            expected="names such as pytorch_model-00001-of-00002.bin",
        )
    return [folder / name for name in names]


def _converted(weights: Sequence[Path], others: dict[str, Path | bytes], kept: Path) -> Path:
    """Return the folder with the weights as safetensors and the other files; made once for their content."""
    contents = {name: file_digest(each) if isinstance(each, Path) else each.decode() for name, each in others.items()}
    sources = {path.name: file_digest(path) for path in weights}
    folder = kept / digest_json([sources, contents])[:16]
    if (folder / CONVERTED_NOTE).is_file():
        return folder
    with _built_aside(folder) as aside:
        for name, each in others.items():
            if name != _BIN_INDEX:
                (aside / name).parent.mkdir(exist_ok=True)
                (aside / name).write_bytes(each.read_bytes() if isinstance(each, Path) else each)
        names = _names(weights, open_clip=OPEN_CLIP_CONFIG in others)
        notes = [convert_to_safetensors(path, aside / name) for path, name in zip(weights, names, strict=True)]
        if len(weights) > 1:
            of_part = dict(zip((path.name for path in weights), names, strict=True))
            content = read_configuration(weights[0].parent / _BIN_INDEX)
            content["weight_map"] = {name: of_part[str(part)] for name, part in content["weight_map"].items()}
            # transformers wants it, be it empty.
            content.setdefault("metadata", {})
            (aside / INDEX).write_text(json.dumps(content))
        (aside / CONVERTED_NOTE).write_text(json.dumps({"converted": notes}, indent=1))
    return folder


def _names(weights: Sequence[Path], *, open_clip: bool) -> list[str]:
    if len(weights) > 1:
        return [f"model-{i:05}-of-{len(weights):05}.safetensors" for i in range(1, len(weights) + 1)]
    return [_OPEN_CLIP_WEIGHTS if open_clip else TRANSFORMERS_WEIGHTS]


@contextmanager
def _built_aside(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside `folder`, which it becomes when it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield aside
        if not folder.exists():
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


# What open_clip's trainer says of its settings.


def _open_clip_files(weights: Path, of: str, model: str | None, project: Path) -> dict[str, Path | bytes]:
    """Return the configuration that open_clip reads, of the architecture that was trained."""
    places = [folder / PARAMETERS for folder in (weights.parent, weights.parent.parent)]
    beside = next((path for path in places if path.is_file()), None)
    parameters = _parameters(beside) if beside is not None else {}
    name = model or parameters.get("model")
    if name is None:
        raise CheckpointError(
            f"nothing says which architecture the checkpoint of {of} has",
            where=weights,
            found=f"no {PARAMETERS} beside it or in the folder above",
            expected="the settings of its training, or the architecture in the audit file",
            hint=f"put the trainer's {PARAMETERS} beside it, or say `model: ARCHITECTURE` there: a name such as "
            "ViT-B-32, or the JSON file of one of your own",
        )
    if model is not None and name.endswith(".json"):
        config = _own_architecture(project / Path(name).expanduser(), of)
    else:
        # What came with the checkpoint may name no file of this machine: only the audit file may.
        config = _architecture(
            name, of, where=beside if model is None and beside is not None else weights, listed=model is None
        )
    return {OPEN_CLIP_CONFIG: json.dumps(_as_trained(config, parameters), sort_keys=True).encode()}


def _architecture(name: str, of: str, *, where: Path, listed: bool) -> dict[str, Any]:
    """Return open_clip's configuration of an architecture; with `listed` of none but those that it has itself."""
    ready_libraries()
    import open_clip

    known = not listed or name in open_clip.list_models()
    config: dict[str, Any] | None = open_clip.get_model_config(name) if known else None
    if config is None:
        raise CheckpointError(
            f"open_clip has no configuration of the architecture of {of}",
            where=where,
            found=f"model: {name}{suggestion(name, open_clip.list_models())}",
            expected="a name of open_clip.list_models(), such as ViT-B-32",
            hint="of an architecture of your own, say `model: FILE.json` in the audit file: the file that the trainer "
            "got, with embed_dim, vision_cfg and text_cfg",
        )
    return config


_DESCRIBED = ("embed_dim", "vision_cfg", "text_cfg")


def _own_architecture(path: Path, of: str) -> dict[str, Any]:
    """Return what a file of open_clip's `model_configs` says."""
    if not path.is_file():
        raise CheckpointError(
            f"the file that describes the architecture of {of} is not there",
            where=path,
            expected="a file as in open_clip's model_configs",
        )
    config = read_configuration(path)
    if lacking := [name for name in _DESCRIBED if name not in config]:
        raise CheckpointError(
            f"this file does not describe the architecture of {of}",
            where=path,
            found=f"no {' and no '.join(lacking)}",
            expected=f"{', '.join(_DESCRIBED)}, as in open_clip's model_configs",
        )
    return config


def _parameters(path: Path) -> dict[str, str]:
    try:
        lines = [line.partition(": ") for line in text_within(path, MOST_SETTINGS, errors="replace").splitlines()]
    except OSError as error:
        raise CheckpointError(
            "the settings of a training cannot be read",
            where=path,
            found=error.strerror,
            expected=f"the trainer's {PARAMETERS}",
        ) from error
    return {name: value.strip() for name, _, value in lines if value.strip() not in ("", "None")}


def _as_trained(config: dict[str, Any], said: dict[str, str]) -> dict[str, Any]:
    """Return `model_cfg` and `preprocess_cfg` of an architecture with the settings that a training changed."""
    from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    vision, text = dict(config["vision_cfg"]), dict(config["text_cfg"])
    config = {**config, "vision_cfg": vision, "text_cfg": text}
    if said.get("force_quick_gelu") == "True":
        config["quick_gelu"] = True
    if said.get("force_custom_text") == "True":
        config["custom_text"] = True
    if said.get("siglip") == "True":
        config.setdefault("init_logit_bias", -10)
    if "force_image_size" in said:
        size = _value(said["force_image_size"])
        vision["image_size"] = size[0] if isinstance(size, list) and size and size == size[:1] * len(size) else size
    if "force_context_length" in said:
        text["context_length"] = _value(said["force_context_length"])
    pixels = {"mean": list(OPENAI_DATASET_MEAN), "std": list(OPENAI_DATASET_STD)}
    for key in ("mean", "std", "interpolation", "resize_mode"):
        if f"image_{key}" in said:
            pixels[key] = _value(said[f"image_{key}"])
    return {"model_cfg": config, "preprocess_cfg": pixels}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    # The last two of what is nested too deep.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
