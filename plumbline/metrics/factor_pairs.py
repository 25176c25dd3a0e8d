"""Pairs of checkpoints that differ in one design factor and in nothing else that the audit file declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

# The paper's sign is first - second of "B/32 vs L/14", "400M vs 2B", "OpenCLIP vs CLIP" (its tables 2 and 4). These
# are its levels in the spellings that checkpoints go by, so that the sign does not hang on the order of a file.
PUBLISHED_LEVELS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "size": (("b32", "vitb32"), ("l14", "vitl14", "l14336", "vitl14336")),
    "data_amount": (("400m",), ("2b",)),
    "data_source": (("openclip", "laion"), ("clip", "openai", "proprietary", "wit", "webimagetext")),
}
"""Factor -> levels in the order of the published comparison; spellings without case and punctuation."""


@dataclass(frozen=True)
class FactorPair:
    """Two checkpoints that differ in one factor. An effect is the value of `first` minus that of `second`.

    Attributes
    ----------
    factor : str
        The factor in which they differ.
    level_first, level_second : str
        Their levels of it.
    first, second : str
        Ids of the checkpoints.
    held : str
        Their common levels of the other factors, as `3k, atlas`; empty where there is no other.
    """

    factor: str
    level_first: str
    level_second: str
    first: str
    second: str
    held: str


def factor_pairs(factors: Mapping[str, Mapping[str, str]]) -> tuple[FactorPair, ...]:
    """Find the pairs of checkpoints that differ in exactly one factor.

    The first of a pair has the level that comes first: in the paper's order where both levels are the paper's
    (`PUBLISHED_LEVELS`), otherwise in the order in which levels first appear among the encoders of the audit file.
    So `small` - `large` where the file lists a small checkpoint first.

    Parameters
    ----------
    factors : mapping of str to mapping of str to str
        Checkpoint -> factor -> level, in the order of the audit file.

    Returns
    -------
    tuple of FactorPair
        By factor, then in the order of the file. Checkpoints that declare other factors, or none, are in no pair
        with each other: what is not declared cannot be held.
    """
    order: dict[str, dict[str, int]] = {}
    for own in factors.values():
        for factor, level in own.items():
            levels = order.setdefault(factor, {})
            levels.setdefault(level, len(levels))
    found = [
        _ordered(one, other, differing[0], factors, order)
        for one, other in combinations(factors, 2)
        if factors[one].keys() == factors[other].keys()
        and len(differing := [f for f in factors[one] if factors[one][f] != factors[other][f]]) == 1
    ]
    names = list(order)
    return tuple(sorted(found, key=lambda pair: names.index(pair.factor)))


def _ordered(
    one: str,
    other: str,
    factor: str,
    factors: Mapping[str, Mapping[str, str]],
    order: Mapping[str, Mapping[str, int]],
) -> FactorPair:
    levels = (factors[one][factor], factors[other][factor])
    ranks = [_published_rank(factor, level) for level in levels]
    if None in ranks or ranks[0] == ranks[1]:
        ranks = [order[factor][level] for level in levels]
    first, second = (one, other) if (ranks[0] or 0) < (ranks[1] or 0) else (other, one)
    held = ", ".join(level for name, level in factors[first].items() if name != factor)
    return FactorPair(factor, factors[first][factor], factors[second][factor], first, second, held)


def _published_rank(factor: str, level: str) -> int | None:
    spelling = re.sub(r"[^a-z0-9]", "", level.lower())
    for rank, spellings in enumerate(PUBLISHED_LEVELS.get(factor, ())):
        if spelling in spellings:
            return rank
    return None
