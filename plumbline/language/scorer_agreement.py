"""How far scorers agree on the same texts: what the choice of a scorer may change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

from plumbline.language.answers import answer_row
from plumbline.language.scored_answers import ScoredAnswers, codes, parts
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_correlation import set_correlation
from plumbline.tables.schema import Row

KINDS: tuple[Literal["pearson", "spearman"], ...] = ("pearson", "spearman")


def scorer_agreement_rows(scored: ScoredAnswers, *, settings: LanguageSettings) -> list[Row]:
    """Return the correlation over answers of every two scorers that scored the same attribute.

    `scorer` and `reference_group` name the two, `event` the scored attribute; 1: the same order or line, 0: none. Nan
    where a scorer gives all texts the same score. n: sets.
    """
    return [
        row
        for names, kinds in parts(scored.kinds, "dataset", "attribute", "scored")
        for pair in combinations(sorted(kinds["scorer"]), 2)
        for row in _rows(scored, names, pair, settings)
    ]


def _rows(
    scored: ScoredAnswers,
    names: tuple[str, ...],
    pair: tuple[str, ...],
    settings: LanguageSettings,
) -> Iterator[Row]:
    dataset, attribute, event = names
    keys = ["unit", "group", "seed", "answer"]
    first, second = (scored.scores_of((dataset, attribute, scorer, event), *keys, "score") for scorer in pair)
    both = first.join(second.rename({"score": "other"}), on=keys).sort(keys)
    for kind in KINDS:
        labels = (scored.model, *names, *pair, scored.prompt, scored.instruction)
        found = set_correlation(
            both["score"].to_numpy(),
            both["other"].to_numpy(),
            codes(both["unit"]),
            kind=kind,
            rng=generator(settings.seed, *labels, "agreement"),
            confidence=settings.confidence,
        )
        yield (
            answer_row(
                scored.model,
                metric="scorer_agreement",
                definition=kind,
                dataset=dataset,
                attribute=attribute,
                event=event,
                scorer=pair[0],
                reference_group=pair[1],
                **scored.columns,
            )
            | {"statistic": "r"}
            | found.columns()
        )
