"""What a checkpoint's address means on the hub: a repository, and which of its files an audit needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any, NamedTuple

from plumbline.checkpoints.addresses import OPEN_CLIP_CONFIG, TRANSFORMERS_CONFIG, Address
from plumbline.checkpoints.conversion import SUFFIXES
from plumbline.checkpoints.loading import declare_missing_operators
from plumbline.errors import CheckpointError


@dataclass(frozen=True)
class Library:
    """What a library's checkpoint repository holds that an audit needs.

    Attributes
    ----------
    settings, weights : tuple of str
        Patterns of file names that are fetched; of the weights, any one will do.
    pickled : tuple of str
        Patterns of weights to convert where there are no others, best first.
    converted : str
        Name of the file that comes of it.
    """

    settings: tuple[str, ...]
    weights: tuple[str, ...]
    pickled: tuple[str, ...]
    converted: str

    def weights_in(self, names: Iterable[str]) -> list[str]:
        """Return the weights among the names of a folder's or a repository's files."""
        return _at_the_top(names, self.weights)

    def pickled_in(self, names: Iterable[str]) -> list[str]:
        """Return the weights that can be converted, best first."""
        return _at_the_top(names, self.pickled)


_OPEN_CLIP = Library(
    settings=("*.json", "*.txt", "*.model"),
    weights=("open_clip*.safetensors",),
    pickled=tuple(f"open_clip*{suffix}" for suffix in SUFFIXES),
    converted="open_clip_model.safetensors",
)
_TRANSFORMERS = Library(
    settings=(
        TRANSFORMERS_CONFIG, "preprocessor_config.json", "processor_config.json", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
        "merges.txt", "*.model",
    ),
    weights=("model.safetensors",),
    pickled=("pytorch_model.bin",),
    converted="model.safetensors",
)  # fmt: skip

_GENERATIVE = Library(
    settings=(
        *_TRANSFORMERS.settings, "generation_config.json", "chat_template.jinja", "chat_template.json",
        "model.safetensors.index.json", "qformer_tokenizer/*.json", "qformer_tokenizer/*.txt",
    ),
    weights=("model.safetensors", "model-*-of-*.safetensors"),
    pickled=("pytorch_model.bin",),
    converted="model.safetensors",
)  # fmt: skip


def _at_the_top(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    top = [name for name in names if "/" not in name]
    return [name for pattern in patterns for name in top if fnmatch(name, pattern)]


def library_of(
    names: Sequence[str],
    family: str | None,
    encoder: str,
    repository: str,
    *,
    written: bool,
    generative: bool = False,
) -> Library:
    """Choose as `locate` will: open_clip where its configuration is there and no other family is asked for."""
    if generative and TRANSFORMERS_CONFIG in names:
        return _GENERATIVE
    if written or (OPEN_CLIP_CONFIG in names and family in (None, "open_clip")):
        return _OPEN_CLIP
    if TRANSFORMERS_CONFIG in names and family != "open_clip":
        return _TRANSFORMERS
    raise CheckpointError(
        f"the repository of `{encoder}` is no checkpoint of open_clip or transformers",
        where=repository,
        found=", ".join(names) or "no file",
        expected=OPEN_CLIP_CONFIG
        if family == "open_clip"
        else f"{OPEN_CLIP_CONFIG} or {TRANSFORMERS_CONFIG}",
    )


class Source(NamedTuple):
    """Where a checkpoint is on the hub.

    Attributes
    ----------
    repository : str
    config : dict or None
        For `ARCHITECTURE/TAG`: the open_clip configuration to write beside the weights.
    """

    repository: str
    config: dict[str, Any] | None


def source_of(address: Address) -> Source:
    """Return where an address leads on the hub; raises CheckpointError where open_clip has no such checkpoint."""
    if address.repository is not None:
        return Source(address.repository, None)
    declare_missing_operators()
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    architecture, tag = str(address.architecture), str(address.tag)
    model, pretrained = open_clip.get_model_config(architecture), get_pretrained_cfg(architecture, tag)
    if model is None or not pretrained.get("hf_hub"):
        known = open_clip.list_pretrained_tags_by_model(architecture)
        raise CheckpointError(
            "open_clip has no such pretrained checkpoint on the hub",
            found=address.text,
            expected=f"{architecture} with one of {', '.join(known)}"
            if known
            else "an architecture of open_clip",
        )
    if bool(pretrained.get("quick_gelu", False)) != bool(model.get("quick_gelu", False)):
        raise CheckpointError(
            "these weights were trained with another activation than this architecture has",
            found=address.text,
            expected=f"{architecture.removesuffix('-quickgelu')}"
            + ("-quickgelu" if pretrained.get("quick_gelu") else "")
            + f"/{tag}",
        )
    preprocess = {
        k: pretrained[k] for k in ("mean", "std", "interpolation", "resize_mode") if pretrained.get(k)
    }
    config = {"model_cfg": model, "preprocess_cfg": preprocess}
    return Source(pretrained["hf_hub"].rsplit("/", 1)[0], config)
