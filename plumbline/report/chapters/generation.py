"""What generative models say of whom: how far apart texts about one scene lie, and who gets the worst of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import polars as pl

from plumbline.catalog.schema import ALL_MODELS
from plumbline.report.chapter import Chapter, Part
from plumbline.report.charts.chart import Chart
from plumbline.report.charts.language import (
    agreement,
    group_scores,
    max_score_shares,
    max_scores,
    occupations,
    small_max_scores,
)
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import max_score_findings
from plumbline.report.language_words import (
    MAX_TITLES,
    attributes_in,
    generated,
    headline_prompt,
    headline_scorer,
    models_in,
    of_headline_scorer,
    of_subset,
    plain,
    prompt_title,
    prompts_in,
    spoken,
)
from plumbline.report.listings import Listing
from plumbline.report.numbers import count, percent
from plumbline.report.reading import Reading
from plumbline.report.rows import in_order, where
from plumbline.report.vocabulary import listed

PEOPLE = ("fleiss_kappa", "judge_precision", "judge_recall")


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    every = generated(table)
    used = of_headline_scorer(where(plain(every), metric=(*MAX_TITLES, "max_score_share", "toxicity")), inputs.reading)
    people = where(every, metric=PEOPLE)
    if used.is_empty() and people.is_empty():
        return []
    parts: list[Part] = []
    for dataset in inputs.datasets_in(used["dataset"]):
        of_dataset = where(used, dataset=dataset)
        parts.append(_spreads(of_dataset, inputs, dataset))
        parts += [_of_subset(of_dataset, inputs, dataset, name) for name in attributes_in(of_dataset)]
    parts += _other_scorers(plain(every), inputs)
    models = (ALL_MODELS, *(one.id for one in inputs.lvlms))
    chart = agreement(people, models, name="agreement-people", title="Agreement of annotators, scorers and the judge")
    parts.append(Part.of("Agreement with people", [chart]))
    first, *others = [part for part in parts if part.pictures or part.notes] or [Part("Answers")]
    return [replace(first, notes=[*foundations(inputs), *first.notes]), *others]


def _spreads(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    rows = spoken(where(own, metric=tuple(MAX_TITLES), definition="paper"))
    models = models_in(rows, inputs)
    charts = [max_scores(where(rows, metric=name), models, dataset=dataset, metric=name) for name in MAX_TITLES]
    return Part.of(f"{dataset}: how differently people of one scene are spoken of", charts)


def _of_subset(own: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> Part:
    rows = where(own, attribute=attribute)
    models, names = models_in(rows, inputs), {"dataset": dataset, "attribute": attribute}
    toxic = spoken(where(rows, metric="max_score_share", event="toxicity"))
    scores = spoken(where(rows, metric="toxicity"))
    # Where people come in scenes, the comparison within scenes says more than that over all answers.
    charts = [
        max_score_shares(toxic, inputs.reading, models, **names),
        group_scores(scores, models, **names),
        *_occupations(inputs, models, dataset, attribute),
    ]
    return Part.of(of_subset(dataset, attribute), charts, notes=_nobody_above(toxic))


def _occupations(inputs: ReportInputs, models: list[str], dataset: str, attribute: str) -> list[Chart | None]:
    table = inputs.language.get("occupation_scores")
    if table is None:
        return []
    chosen = where(table, event="toxicity", scorer=headline_scorer(table, inputs.reading))
    return [occupations(chosen, model=model, dataset=dataset, attribute=attribute) for model in models]


def _nobody_above(worst: pl.DataFrame) -> list[str]:
    """Say for which prompts nobody is the worst off, and why."""
    gone = spoken(worst).filter(pl.col("value").is_null() | pl.col("value").is_nan())
    notes = []
    for (model, reason), subset in gone.group_by("model", "reason", maintain_order=True):
        prompts = listed(prompt_title(prompt) for prompt in prompts_in(subset))
        why = str(reason or "no reason was recorded").removeprefix("undefined: ")
        notes.append(f"{model}: who gets the most toxic text cannot be said for {prompts}: {why}.")
    return notes


def _other_scorers(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    """Return each headline metric under every scorer, where there is more than one."""
    rows = where(table, metric=tuple(MAX_TITLES), definition="paper")
    agrees = where(table, metric="scorer_agreement")
    if rows["scorer"].n_unique() < 2 and agrees.is_empty():
        return []
    parts = []
    for dataset in inputs.datasets_in(pl.concat([rows, agrees])["dataset"]):
        on_dataset = where(rows, dataset=dataset)
        on_dataset = where(on_dataset, prompt=headline_prompt(on_dataset))
        models, pairs = models_in(on_dataset, inputs), where(agrees, dataset=dataset)
        scores = {name: where(on_dataset, metric=name) for name in MAX_TITLES}
        charts = [max_scores(rows, models, dataset=dataset, metric=name, by="scorer") for name, rows in scores.items()]
        pairs = where(pairs, prompt=headline_prompt(pairs))
        charts.append(agreement(pairs, models, name=f"agreement-{dataset}", title=f"How far scorers agree, {dataset}"))
        note = (
            "Scorers differ in what they call toxic: a difference between models or groups that only one of them "
            "finds is one of that scorer."
        )
        part = Part.of(f"{dataset}: the same answers under every scorer", charts, notes=[note])
        choice = scorer_choice(where(table, dataset=dataset), inputs.reading)
        part.tables.extend([("What the choice of a scorer changes, by toxicity", choice)] if choice else [])
        parts.append(part)
    return parts


# --- What the numbers rest on, said before they are shown.


def foundations(inputs: ReportInputs) -> list[str]:
    """Return plain sentences: who answered how often, who scored, what is planted, what failed."""
    answers = [f"{one.id} ({count(one.rows)})" for one in inputs.lvlms]
    notes = [f"Answers: {listed(answers)}."] if answers else []
    return [*notes, *_scorers(inputs), *_planted(inputs), *_base_llms(inputs), *_failed(inputs)]


def _scorers(inputs: ReportInputs) -> list[str]:
    reading = inputs.reading
    if not reading.scorers:
        return []
    stand_ins = [name for name in reading.scorers if name in reading.stand_ins]
    real = [name for name in reading.scorers if name not in stand_ins]
    notes = []
    if stand_ins:
        names, verb = listed(f"“{name}”" for name in stand_ins), "is" if len(stand_ins) == 1 else "are"
        notes.append(
            f"{names} {verb} an offline stand-in for a scorer: a list of offensive words, so that an audit "
            "runs without a model. Its scores show that the audit works; they do not measure how toxic a text is."
        )
    if real:
        notes.append(f"Headlines and figures are of the scores of {reading.scorers[0]}.")
    return notes


def _planted(inputs: ReportInputs) -> list[str]:
    models = [one.id for one in inputs.lvlms if one.planted]
    notes = []
    if models:
        verb, who = ("was", "a planted model") if len(models) == 1 else ("were", "planted models")
        notes.append(
            f"{listed(models)} {verb} trained to say known words of each group at known rates ({who}): what is found "
            "says nothing about any group of people."
        )
    if inputs.planted:
        notes.append(f"The pictures of {listed(inputs.planted)} are drawn by a program, and show nobody.")
    return notes


def _base_llms(inputs: ReportInputs) -> list[str]:
    return [
        f"{one.id} is the base language model of {listed(one.base_llm_of)}: it sees no image and gets a description "
        "instead."
        for one in inputs.lvlms
        if one.base_llm_of
    ]


def _failed(inputs: ReportInputs) -> list[str]:
    notes = []
    for one in inputs.lvlms:
        failed = one.checks.filter(~one.checks["passed"])["check"].to_list()
        if failed:
            notes.append(f"{one.id}: {len(failed)} of {one.checks.height} checks failed: {', '.join(failed)}.")
    return notes


# --- How far the choice of a scorer changes who is the worst off, and in which occupations groups lie
# furthest apart.

SHOWN = 4
"""Occupations at the upper end, as many as the report draws."""


def scorer_choice(rows: pl.DataFrame, reading: Reading) -> Listing | None:
    """List, for each further scorer, how often it names the same as the scorer of the headlines, by toxicity.

    Parameters
    ----------
    rows : DataFrame
        Metric rows of one dataset without instruction.

    Returns
    -------
    Listing or None
        None where there are no two scorers. Groups that tie are the worst off together. Only what both scorers tell
        of is compared.
    """
    rows = where(rows, event="toxicity").filter(pl.col("value").is_finite())
    worst, spreads = where(rows, metric="max_score_share"), where(rows, metric="occupation_spread")
    first = headline_scorer(pl.concat([worst, spreads]), reading)
    others = [name for name in in_order(rows["scorer"], reading.scorers) if name != first]
    if first is None or not others:
        return None
    groups, jobs = _worst(worst), _widest(spreads)
    lines = []
    for other in others:
        same = [ours == theirs for ours, theirs in _both(groups, first, other)]
        pairs = _both(jobs, first, other)
        shared = sum(len(ours & theirs) for ours, theirs in pairs)
        lines.append((other, _of(sum(same), len(same)), _of(shared, sum(len(ours) for ours, _ in pairs))))
    heads = (
        f"Scorer, held against {first}",
        "Same group worst off (model × subset × prompt)",
        f"Same among the {SHOWN} occupations of the largest spread",
    )
    return Listing(heads, lines, frozenset({1, 2}))


_Named = dict[str, dict[Hashable, frozenset[str]]]
"""Scorer -> what is compared -> names."""


def _worst(rows: pl.DataFrame) -> _Named:
    best = rows.filter(pl.col("value") == pl.col("value").max().over("model", "attribute", "prompt", "scorer"))
    return _named(best, "group", "model", "attribute", "prompt")


def _widest(rows: pl.DataFrame) -> _Named:
    ordered = rows.drop_nulls("occupation").sort(["value", "occupation"], descending=[True, False])
    widest = ordered.group_by("model", "attribute", "scorer", maintain_order=True).head(SHOWN)
    return _named(widest, "occupation", "model", "attribute")


def _named(rows: pl.DataFrame, name: str, *by: str) -> _Named:
    named: _Named = {}
    for (scorer, *key), subset in rows.group_by("scorer", *by):
        named.setdefault(str(scorer), {})[tuple(key)] = frozenset(subset[name])
    return named


def _both(found: _Named, first: str, other: str) -> list[tuple[frozenset[str], frozenset[str]]]:
    ours, theirs = found.get(first, {}), found.get(other, {})
    return [(ours[key], theirs[key]) for key in ours if key in theirs]


def _of(part: int, whole: int) -> str:
    return f"{part} of {whole} ({percent(part / whole)})" if whole else "–"


CHAPTER = Chapter(
    anchor="generation",
    title="What generative models say of whom",
    lead="Models that answer in words were asked about pictures of people. Where each scene is shown with its person "
    "changed and all else alike, what differs between the answers is owed to the person, or to chance where answers "
    "are drawn.",
    parts=_parts,
    findings=max_score_findings,
    pictures={"max_toxicity": small_max_scores},
    method=(
        (
            "MaxToxicity and its siblings",
            "Every answer is scored from 0 to 1 for toxicity, insult, identity attack and flirtation. MaxToxicity of a "
            "scene, prompt and seed is the highest minus the lowest toxicity of the answers about its people. Shown "
            "are the mean and the linear 90th percentile over complete scenes and seeds. It cannot fall below 0, and "
            "answers that are drawn at random differ by chance alone: read it against other models and prompts. "
            "“Without refusals” leaves out scenes in which an answer was refused. Intervals resample whole scenes, "
            "however often they were asked about.",
        ),
        (
            "Who gets the most toxic text",
            "Of the scenes and seeds above the 90th percentile (at it, where none is above), each counts once, shared "
            "where groups tie. p is exact and two-sided: what the pictures of a scene got over its seeds is dealt to "
            "its groups at random. "
            "Intervals: Wilson, with the effective number of scenes.",
        ),
        (
            "By occupation",
            "The standard deviation of the groups' mean scores within an occupation that has enough scenes; p by "
            "shuffling groups within scenes. Shown are up to four occupations at each end.",
        ),
        (
            "Several scorers, and people",
            "Rank and linear correlation over the same answers of every two scorers. Fleiss' kappa of annotators, "
            "alone and with the score from 0.3 on as one annotator more; precision and recall of the judge of "
            "stereotypes against the majority of annotators. Over all models these rest on whole sheets, as those of "
            "the study; of one model, on its own texts and words among them.",
        ),
    ),
)
