"""Texts with learned tokens before their words: what a prompt that is trained by gradient needs of a text tower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plumbline.errors import EncodingError

if TYPE_CHECKING:
    import torch


def require_start(ids: torch.Tensor, starts: Sequence[int | None]) -> None:
    """Refuse tokens without a start token: a word would be lost where one is expected.

    Parameters
    ----------
    ids : (b, n) int tensor
    starts : sequence of int or None
        What the tokenizer calls the beginning of a text, under any of its names.

    Raises
    ------
    EncodingError
        If a row begins with another token, as those of SigLIP's tokenizers do.
    """
    known = [start for start in starts if start is not None]
    others = [first for first in ids[:, 0].tolist() if first not in known]
    if others:
        raise EncodingError(
            "learned tokens stand after a start token, and this tokenizer puts none before a text",
            found=f"first token {others[0]}",
            expected=f"start token {' or '.join(map(str, known))}"
            if known
            else "a tokenizer with a start token",
        )


def with_placeholders(ids: torch.Tensor, count: int) -> torch.Tensor:
    """Insert `count` placeholder tokens after the first token of every row, and drop as many at its end.

    Parameters
    ----------
    ids : (b, n) int tensor
        Rows that begin with the start token (see `require_start`) and end in padding.

    Returns
    -------
    (b, n) int tensor
        The placeholder is the start token: it is never taken for the end of a text or for padding.

    Raises
    ------
    EncodingError
        If a row has no room: what would be dropped is not padding alone.
    """
    import torch

    if count and not bool(
        (ids[:, -count:] == ids[:, -1:]).all() and (ids[:, -count - 1] == ids[:, -1]).all()
    ):
        raise EncodingError(
            "a text leaves no room for the learned tokens",
            found=f"{ids.shape[1]} tokens in all",
            expected=f"at least {count} of them free",
        )
    start = ids[:, :1].expand(-1, count)
    return torch.cat([ids[:, :1], start, ids[:, 1 : ids.shape[1] - count]], dim=1)


@contextmanager
def replaced_embeddings(layer: Any, learned: torch.Tensor) -> Iterator[None]:
    """Have a token-embedding layer give (k, w) learned vectors at positions 1 to k; gradients flow into them."""
    import torch

    def replace(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        rows = learned.to(output.dtype).expand(output.shape[0], -1, -1)
        return torch.cat([output[:, :1], rows, output[:, 1 + learned.shape[0] :]], dim=1)

    handle = layer.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
