"""Social perception: whose faces come first when all are ranked by a trait."""

from __future__ import annotations

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.figures.rankings import (
    AGAINST,
    EQUAL,
    RANKED,
    most_skewed_first,
    skew_at_k_figure,
    small_ranking_figure,
    small_spread_figure,
    spread_figure,
)
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import count
from plumbline.report.ranking_findings import ranking_findings
from plumbline.report.ranking_listings import group_listing, spread_listing, word_listing
from plumbline.report.rows import where

METRICS = ("skew_at_k", "max_skew_at_k", "ndkl")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    reading, models = inputs.audit, inputs.models
    names = most_skewed_first(own, models, dataset)
    by_group = [skew_at_k_figure(own, reading, model=model, dataset=dataset) for model in names]
    spreads = [spread_figure(own, reading, models, dataset, metric) for metric in METRICS[1:]]
    equal = [
        *(
            skew_at_k_figure(own, reading, model=model, dataset=dataset, definition=EQUAL)
            for model in names[:1]
        ),
        *(spread_figure(own, reading, models, dataset, metric, EQUAL) for metric in METRICS[1:]),
    ]
    listings = [
        (f"{what}, desired: {AGAINST[definition]}", listing(own, reading, models, dataset, definition))
        for what, listing in (("MaxSkew@k and NDKL", spread_listing), ("Skew@k", group_listing))
        for definition in (RANKED, EQUAL)
    ]
    listings.append(("Words that rank a group first and last", word_listing(own, reading, models, dataset)))
    return Part(
        title=dataset,
        pictures=drawn([*by_group[:1], *spreads]),
        details=drawn([*by_group[1:], *equal]),
        listings=[(title, listing) for title, listing in listings if listing.rows],
        notes=_notes(own, models=len(names)),
    )


def _notes(own: pl.DataFrame, *, models: int) -> list[str]:
    notes = []
    lengths = own["k"].drop_nulls().unique().sort().to_list()
    if lengths and lengths != [1000]:
        told = " and ".join(count(k) for k in lengths)
        notes.append(
            f"With fewer than 2,000 labelled faces, k is half of them instead of 1,000: here {told}."
        )
    if models > 1:
        notes.append("Of the rankings by group, those of the model with the largest skew are shown first.")
    return notes


CHAPTER = Chapter(
    anchor="rankings",
    title="Social perception: rankings",
    lead="An image search for “a friendly person” shows whom a model finds friendliest. When all faces are ranked by "
    "how well an adjective fits them, whose faces come first, and is that more than a random order would give?",
    parts=_parts,
    findings=ranking_findings,
    pictures={"rankings": small_ranking_figure, "ndkl": small_spread_figure},
    method=(
        (
            "Skew@k and MaxSkew@k",
            "Faces are ranked by their cosine with a word, averaged over four templates, for a scale over its words; "
            "equal faces by image id. Skew@k is the natural logarithm of a group's share among the k best over its "
            "desired share: an equal one for every group, as in the paper, or the group's share of the ranked faces; "
            "−∞ for a group that is absent. MaxSkew@k is the largest. Intervals are BCa over resampled faces (over "
            "resampled sets where faces come in sets); that of the largest, which chance makes too large, is joined "
            "with those of the groups. p asks whether the order has anything to do with the groups: "
            "Fisher's exact test of each group's count, random tops for the largest; it is the same for either kind "
            "of desired share, so against equal shares a skew can be large and yet only mirror the data.",
        ),
        (
            "NDKL",
            "The Kullback–Leibler divergence of the groups' shares from the desired ones, in nats, over every prefix "
            "of the ranking, earlier prefixes weighing more. The first face is of one group whatever the model, so "
            "NDKL is never 0: read it against the stroke that marks random rankings. The interval is the jackknife's "
            "for the expected NDKL of as many faces; p by random rankings, within sets where faces come in sets.",
        ),
    ),
)
