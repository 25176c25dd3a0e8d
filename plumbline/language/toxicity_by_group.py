"""Scores of each group's texts, of datasets with and without counterfactual sets."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.language.answers import answer_row
from plumbline.language.max_toxicity import P90
from plumbline.language.scored_answers import OF_SCORES, ScoredAnswers, codes, parts
from plumbline.language.settings import LanguageSettings
from plumbline.statistics.seeds import generator
from plumbline.statistics.set_groups import group_means, group_quantiles
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES
from plumbline.tables.schema import Row


def group_score_rows(scored: ScoredAnswers, *, settings: LanguageSettings) -> list[Row]:
    """Return mean and linear 90th percentile of the scores of each group.

    Source: Howard et al., Table 9 (90th percentile, real images without sets). All answers with a score count, of sets
    that are complete or not. What is resampled is the set, or where there is none the image with all its seeds: 15
    answers about one image are not 15 images. n: sets, or images, of the group.
    """
    return [
        row
        for names, _ in parts(scored.kinds, *OF_SCORES)
        if names[-1] in SCORED_ATTRIBUTES
        for row in _rows(scored, names, settings)
    ]


def _rows(scored: ScoredAnswers, names: tuple[str, ...], settings: LanguageSettings) -> Iterator[Row]:
    dataset, attribute, scorer, metric = names
    own = scored.scores_of(names, "score", "group", "unit")
    groups = sorted(own["group"].unique())
    common = answer_row(
        scored.model,
        metric=metric,
        definition="score",
        dataset=dataset,
        attribute=attribute,
        scorer=scorer,
        **scored.columns,
    )
    labels = (scored.model, *names, scored.prompt, scored.instruction)
    data = (own["score"].to_numpy(), codes(own["group"]), codes(own["unit"]))
    means = group_means(
        *data,
        n_groups=len(groups),
        resamples=settings.resamples,
        rng=generator(settings.seed, *labels, "mean"),
        confidence=settings.confidence,
    )
    quantiles = group_quantiles(
        *data,
        share=P90,
        n_groups=len(groups),
        resamples=settings.resamples,
        rng=generator(settings.seed, *labels, "p90"),
        confidence=settings.confidence,
    )
    for group, mean, quantile in zip(groups, means, quantiles):
        yield common | {"group": group, "statistic": "mean"} | mean.columns()
        yield common | {"group": group, "statistic": "p90"} | quantile.columns()
