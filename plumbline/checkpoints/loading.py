"""Loading whole models from disk: nothing is downloaded, nothing random is left."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upath import UPath

from plumbline.checkpoints.folders import file_digest, model_files, require_complete
from plumbline.checkpoints.operators import declare_missing_operators
from plumbline.digests import digest_json
from plumbline.errors import CheckpointError, PlumblineError, StorageError, examples
from plumbline.storage.files import commit_bytes
from plumbline.version import library_version

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as Picture

# Models of open_clip and transformers, whole and from this disk alone.

FROM_DISK: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Options of every `from_pretrained` of transformers."""


def ready_libraries() -> None:
    """Make this process ready to import open_clip or transformers: neither downloads anything from here on.

    A run uses what is on disk, whatever the environment says.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import constants

    # The variable is read once, at import, which may have been long ago.
    constants.HF_HUB_OFFLINE = True
    declare_missing_operators()


_WALL = threading.RLock()


@contextmanager
def safetensors_alone() -> Iterator[None]:
    """Refuse pickles, and code of a checkpoint, while a library reads its files: a second wall behind `refuse_code`.

    What libraries call for either is replaced as long as this lasts, also where a module has imported it by name.
    """
    import torch
    from transformers import dynamic_module_utils

    with _WALL:
        load, ask = torch.load, dynamic_module_utils.resolve_trust_remote_code
        try:
            _replace(load, _no_pickle, ask, _no_code)
            yield
        finally:  # also in modules that were imported meanwhile
            _replace(_no_pickle, load, _no_code, ask)


def _replace(load: Any, load_now: Any, ask: Any, ask_now: Any) -> None:
    """Put functions in the place of `torch.load` and of transformers' question, in every module that has them."""
    import torch

    if torch.load is load:
        torch.load = torch.serialization.load = load_now
    for module in [module for name, module in list(sys.modules.items()) if name.startswith("transformers.")]:
        if vars(module).get("resolve_trust_remote_code") is ask:
            vars(module)["resolve_trust_remote_code"] = ask_now


def _no_pickle(file: object, *_: Any, **__: Any) -> Any:
    raise CheckpointError("a checkpoint leads to a pickle, which nothing here opens", where=str(file))


def _no_code(trust: object, name: object, has_local_code: bool, has_remote_code: bool, *_: Any, **__: Any) -> bool:
    if has_remote_code and not has_local_code:
        raise CheckpointError("a checkpoint leads to code of its own, which nothing here runs", where=str(name))
    return False


_LIMITED = threading.RLock()


@contextmanager
def memory_limited(room: int) -> Iterator[None]:
    """Have this process refuse itself more than `room` bytes beyond what it has, where the system can do that.

    What is above it fails, mostly with a MemoryError, in all threads. Files that are mapped do not count.
    """
    taken = Path("/proc/self/statm")
    if not taken.exists():
        yield
        return
    import resource

    # One thread at a time: another would take this limit for that of before, and keep it.
    with _LIMITED:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = int(taken.read_text().split()[5]) * resource.getpagesize() + room
        limits = [limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _is_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)  # NumPy, and torch


def modest_images(folder: Path) -> AbstractContextManager[None]:
    """Refuse an image processor that takes more memory for a small image than building a model may take.

    Which of its settings decide how large an image becomes (sides, tiles, patches, their numbers of pixels) differs
    from class to class.

    Raises
    ------
    CheckpointError
    """
    return _within_room(
        "the image processor of this checkpoint makes more of a small image than any model needs", folder
    )


def modest_run(folder: Path, device: str) -> AbstractContextManager[None]:
    """Refuse a model that takes more memory for one small image, or one short text, than building it may take.

    Which settings decide that (windows, patches, inner widths, padding) differs from model to model. On a CPU alone:
    what a GPU lacks ends in an error of its own.

    Raises
    ------
    CheckpointError
    """
    what = "this checkpoint takes more memory for a small image or a short text than any model needs"
    return _within_room(what, folder) if device == "cpu" else nullcontext()


@contextmanager
def _within_room(refusal: str, folder: Path) -> Iterator[None]:
    try:
        with memory_limited(ROOM):
            yield
    except Exception as error:
        if not _is_of_memory(error):
            raise
        raise CheckpointError(
            refusal,
            where=folder,
            found=str(error).partition("\n")[0] or type(error).__name__,
            expected=f"at most {ROOM >> 30} GiB of memory taken",
        ) from error


_STRIPS = ((4, 800), (800, 4))
"""An image that is cut into tiles gets most of them where it is a strip."""


def require_modest_strips(take: Callable[[Picture], object], folder: Path) -> None:
    """Refuse an image processor that takes more memory for a narrow image than `modest_images` lets it take.

    Parameters
    ----------
    take : callable
        Whatever else it raises is not told: such an image is refused when it is met.
    """
    from PIL import Image

    for size in _STRIPS:
        try:
            with modest_images(folder):
                take(Image.new("RGB", size))
        except CheckpointError:
            raise
        except Exception:  # noqa: S112
            continue


_TOLD_BY_MESSAGE = (RuntimeError, ValueError, OSError, ImportError, TypeError)


@contextmanager
def loading(what: str, *, where: Path, expected: str) -> Iterator[None]:
    """Turn whatever a library raises on the files of a checkpoint into one error.

    Parameters
    ----------
    what : str
        What could not be done, for the message.

    Raises
    ------
    CheckpointError
    """
    try:
        with safetensors_alone():
            yield
    except PlumblineError:
        raise
    except Exception as error:
        lines, name = str(error).strip().splitlines() or [""], type(error).__name__
        # What torch says of weights that do not fit begins with a line that names none.
        message = f"{lines[0]} {lines[1].strip()}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
        raise CheckpointError(
            what,
            where=where,
            # Of a missing key, or a failed assertion, the message alone says nothing.
            found=message if isinstance(error, _TOLD_BY_MESSAGE) and message else f"{name}: {message}".rstrip(": "),
            expected=expected,
            hint="a tokenizer.model needs the package sentencepiece" if "sentencepiece" in str(error) else None,
        ) from error


def pretrained(auto_class: Any, folder: Path, **options: Any) -> Any:
    """Return the tokenizer or processor that transformers reads from a folder, within a limit of memory.

    Parameters
    ----------
    auto_class : class of transformers
        Such as `AutoTokenizer`.
    options
        Further options of its `from_pretrained`.
    """
    with memory_limited(ROOM):
        return auto_class.from_pretrained(folder, **options, **FROM_DISK)


def whole_model(
    model_class: Any,
    folder: Path,
    *,
    dtype: str,
    weights: Path,
    of: str,
    may_be_left: Callable[[str], object],
    attention: str | None = None,
    **options: Any,
) -> Any:
    """Return a model of transformers with the weights of a folder, all of them.

    Parameters
    ----------
    model_class : class of transformers
    dtype : str
        Such as `float32`.
    weights, of, may_be_left
        As in `require_every_weight`.
    attention : str, optional
        Its implementation; by default torch's own where the class has that, else the plain one. It is said here, so
        that no configuration says another; these two need nothing but torch.
    options
        Further options of `from_pretrained`.

    Raises
    ------
    CheckpointError
        If weights are absent from the files, or the files have others.
    """
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    with weights_limited([weights] if weights.is_file() else sorted(weights.glob("*.safetensors"))):
        model, info = model_class.from_pretrained(
            folder,
            use_safetensors=True,
            # Refused below, with names and sizes: transformers itself refers to a table that it has printed.
            ignore_mismatched_sizes=True,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            attn_implementation=_attention_of(model_class, attention),
            **FROM_DISK,
            **options,
        )
    require_every_weight(info, where=weights, of=of, may_be_left=may_be_left)
    return model


def _attention_of(model_class: Any, attention: str | None) -> str:
    return attention or ("sdpa" if model_class._supports_sdpa else "eager")


@contextmanager
def weights_limited(files: Sequence[Path]) -> Iterator[None]:
    """Have this process take no more memory than a model of these safetensors files needs while it is loaded.

    Sizes are compared before, but of a model that cannot be built without numbers.
    """
    stored = sum(math.prod(shape) for path in files for shape in _sizes_in(path).values())
    with memory_limited(ROOM + (_TIMES * stored + _SPARE) * _BYTES):
        yield


def require_every_weight(
    info: Mapping[str, Any], *, where: Path, of: str, may_be_left: Callable[[str], object]
) -> None:
    """Refuse a model of which some weights are not those of its files, or the files hold more.

    transformers fills in what is absent with random numbers, and only logs it.

    Parameters
    ----------
    info : mapping
        What `from_pretrained(..., output_loading_info=True)` says.
    where : Path
        The weights, or their folder.
    of : str
        Whose weights are expected, such as a class of transformers.
    may_be_left : callable
        Given the name of a weight that the model lacks: whether the files may hold it all the same.

    Raises
    ------
    CheckpointError
        With the names of the weights.
    """
    problems = {
        "absent from the files": info["missing_keys"],
        "not in the model": [name for name in info["unexpected_keys"] if not may_be_left(name)],
        "of another shape": info["mismatched_keys"],
    }
    for problem, names in problems.items():
        if names:
            listed = sorted(name if isinstance(name, str) else _of_sizes(*name) for name in names)
            raise CheckpointError(
                f"{len(listed)} weight(s) are {problem}; transformers would go on with random ones",
                where=where,
                found=examples(listed),
                expected=f"exactly the weights of {of}",
            )


def _of_sizes(name: str, held: Sequence[int], expected: Sequence[int]) -> str:
    return f"{name} of {tuple(held)} in place of {tuple(expected)}"


def clone_weights(model: torch.nn.Module) -> None:
    """Copy weights and buffers once; on a CPU they would else follow whatever is written into the mapped file."""
    for tensor in (*model.parameters(), *model.buffers()):
        # Tied weights are one tensor, met once, and so they stay tied.
        tensor.data = tensor.data.clone()


# --- Whether the weights of a checkpoint have the sizes that its configuration says, before any of them
# is read.

_LIBRARIES = ("torch", "transformers", "open_clip_torch", "timm")
_SHOWN = 5
_MOVED = ("model", "language_model")
"""Parts of names that are elsewhere in a later release: `language_model.model.norm`, `model.language_model.norm`."""

ROOM = 4 << 30
"""Bytes that building a model, reading a tokenizer or processor, or a first image may take."""

Sizes = dict[str, list[int]]
"""Name of a weight -> its shape."""


def require_sizes(
    folder: Path,
    weights: Sequence[Path],
    architecture: Callable[[], torch.nn.Module],
    *,
    configuration: str,
    kept: Path | None = None,
) -> None:
    """Refuse weights whose sizes are not those that a model of this configuration has.

    Of weights that the library renames in another way when it loads them, nothing is known before: loading finds those.

    Parameters
    ----------
    folder : Path
        Of the checkpoint.
    weights : sequence of Path
        Its safetensors files, of which only the headers are read.
    architecture : callable
        Builds the model without numbers, see `built_without_numbers`.
    configuration : str
        Name of the file that says the sizes, for the message.
    kept : Path, optional
        Folder of what was found before, below the home: to build a model, its library is loaded. Nothing is kept
        where there is no home yet.

    Raises
    ------
    CheckpointError
        With the weights, their sizes and those expected.
    """
    if not weights:  # which is refused by itself
        return
    held = {name: shape for path in weights for name, shape in _sizes_in(path).items()}
    settings = {path.name: file_digest(path) for path in model_files(folder)}
    name = digest_json([held, settings, {name: library_version(name) for name in _LIBRARIES}])
    found_before = None if kept is None else kept / name
    expected = None if found_before is None else _kept_sizes(found_before)
    if expected is None:
        expected = _other_sizes(held, architecture, folder)
        # A look makes no home, and a home may only be read: then it is found again the next time.
        if found_before is not None and found_before.parent.parent.is_dir():
            with suppress(StorageError):
                note = {"sizes": expected, "digest": digest_json(expected)}
                commit_bytes(UPath(found_before), json.dumps(note).encode())
    if expected:
        names = sorted(expected)[:_SHOWN]
        more = " …" if len(expected) > _SHOWN else ""
        raise CheckpointError(
            f"{len(expected)} weight(s) have another size than the configuration says",
            where=", ".join(str(path) for path in weights),
            found="; ".join(f"{name}: {_shown(held[name])}" for name in names) + more,
            expected="; ".join(_shown(expected[name]) for name in names) + f"{more}, as {configuration} says",
            hint="weights and configuration are of two checkpoints: fetch or copy them again, from one place",
        )


def _kept_sizes(path: Path) -> Sizes | None:
    """Return what was found before; None where that is not known, or not as it was written."""
    try:
        note = json.loads(path.read_text("utf-8"))
        sizes: Sizes = note["sizes"]
        return sizes if note["digest"] == digest_json(sizes) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def built_without_numbers(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """Build a model whose weights have shapes and take no memory; some compute tables of positions all the same."""
    import torch

    with safetensors_alone(), torch.device("meta"), memory_limited(ROOM):
        return build()


def architecture_of(model_class: Any, folder: Path, *, attention: str | None = None) -> torch.nn.Module:
    """Build a model of transformers without numbers, with the attention with which `whole_model` loads it."""
    import torch
    import transformers

    config = pretrained(transformers.AutoConfig, folder)
    build = getattr(model_class, "from_config", None) or model_class._from_config
    options = {"attn_implementation": _attention_of(model_class, attention), "dtype": torch.float32}
    return built_without_numbers(lambda: build(config, **options))


def _other_sizes(held: Sizes, architecture: Callable[[], torch.nn.Module], folder: Path) -> Sizes:
    """Return the sizes that the model has, of the weights that differ from them."""
    try:
        model = architecture()
    except Exception as error:
        if _is_of_memory(error):
            raise CheckpointError(
                "the configuration makes a model that takes more memory than it may while it is built",
                where=folder,
                found=str(error).partition("\n")[0] or type(error).__name__,
                expected=f"at most {ROOM >> 30} GiB before weights are read",
            ) from error
        # Some models compute while they are built: what is wrong with such a one, loading says, `weights_limited`.
        return {}
    expected = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    # Masks and positions are in no file, and take memory all the same.
    unstored = {name: list(tensor.shape) for name, tensor in model.named_buffers() if name not in expected}
    _require_in_proportion(expected | unstored, held, folder)
    of_core = _by_core(expected)
    differing: Sizes = {}
    for core, name in _by_core(held).items():
        known = expected.get(name) or expected.get(of_core.get(core, ""))
        if known is not None and known != held[name]:
            differing[name] = known
    return differing


_TIMES, _SPARE, _BYTES = 4, 1 << 26, 4
"""Numbers of a model for each of its files, where weights are shared between parts; so many more; bytes of each."""


def _require_in_proportion(expected: Sizes, held: Sizes, folder: Path) -> None:
    """Refuse a configuration that makes a model much larger than its files: memory is taken before they are read."""
    numbers, stored = (sum(map(math.prod, sizes.values())) for sizes in (expected, held))
    if numbers > _TIMES * stored + _SPARE:
        raise CheckpointError(
            "the configuration makes a model that is much larger than its weights",
            where=folder,
            found=f"{numbers:,} numbers, of which the files hold {stored:,}",
            expected="weights and configuration of one checkpoint",
        )


def _by_core(sizes: Sizes) -> dict[str, str]:
    """Return the names of weights by what releases of transformers leave of them; those that are told apart by it."""
    core_of = {name: ".".join(part for part in name.split(".") if part not in _MOVED) for name in sizes}
    times = Counter(core_of.values())
    return {core: name for name, core in core_of.items() if times[core] == 1}


def _sizes_in(path: Path) -> Sizes:
    from safetensors import safe_open

    require_complete(path)
    with safe_open(path, framework="numpy") as file:
        names = file.keys()
        return {name: list(file.get_slice(name).get_shape()) for name in names}


def names_in(path: Path) -> frozenset[str]:
    """Return the names of the weights of a safetensors file; of it the header is read."""
    return frozenset(_sizes_in(path))


def _shown(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"
