"""Tables of the report about numbers of each group: words of competence, ratings, salaries, refusals, lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from plumbline import reasons
from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.figures.canvas import Picture
from plumbline.report.figures.language import gap_figure, group_figure, rating_figure
from plumbline.report.inputs import ReportInputs
from plumbline.report.language import capped, gap_findings
from plumbline.report.language_words import attributes_in, models_in, of_subset, plain, prompt_title, prompts_in
from plumbline.report.listings import Listing, estimate, share
from plumbline.report.numbers import bare_p, count, interval, money, with_interval
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title, listed

Written = Callable[[Row | None], str]
Column = tuple[str, str, str, Written]


def salary(row: Row | None) -> str:
    """Return a salary with its interval as text, else as `estimate`."""
    if row is None or not defined(row["value"]):
        return estimate(row)
    ends = interval(row["ci_low"], row["ci_high"])
    return with_interval(money(row["value"]), ends)


def numbers_listing(rows: pl.DataFrame, models: Sequence[str], columns: Sequence[Column]) -> Listing:
    """List numbers of every group, a row a model, prompt and group.

    Parameters
    ----------
    columns : sequence of (str, str, str, callable)
        Head, metric, definition, and how a row is written.
    """
    lookup = by(rows.drop_nulls("group"), "model", "prompt", "group", "metric", "definition")
    keys = {key[:3] for key in lookup}
    shown = []
    for model in models:
        for prompt in prompts_in(rows):
            for group in in_order(rows["group"], ()):
                if (model, prompt, group) not in keys:
                    continue
                estimates = [
                    lookup.get((model, prompt, group, metric, definition)) for _, metric, definition, _ in columns
                ]
                known = [row for row in estimates if row]
                if not known:
                    continue
                cells = (written(row) for row, (*_, written) in zip(estimates, columns))
                notes = dict.fromkeys(row["reason"] for row in known if row["reason"])
                labels = (model, prompt_title(prompt), group_title(group))
                shown.append((*labels, *cells, count(known[0]["n"]), "; ".join(notes)))
    heads = ("Model", "Prompt", "Group", *(head for head, *_ in columns), "n", "Note")
    return capped(heads, shown, frozenset(range(3, 4 + len(columns))))


def gap_listing(rows: pl.DataFrame, titles: Mapping[str, tuple[str, Written]]) -> Listing:
    """List gaps between groups with their tests, the surest first.

    Parameters
    ----------
    titles : mapping of str to (str, callable)
        Metric -> what it is called, and how a row is written.
    """
    chosen = where(rows, metric=tuple(titles))
    ordered = chosen.sort(
        [pl.coalesce(pl.col("q").fill_nan(None), pl.col("p").fill_nan(None)), "model", "prompt"], nulls_last=True
    )
    shown = []
    for row in ordered.to_dicts():
        title, written = titles[row["metric"]]
        labels = (row["model"], attribute_title(row["attribute"]), title, prompt_title(row["prompt"]))
        tests = (bare_p(row["p"]), bare_p(row["q"]))
        shown.append((*labels, row["occupation"] or "all", written(row), *tests, count(row["n"]), row["reason"] or ""))
    heads = ("Model", "People differ in", "Gap of", "Prompt", "Occupation", "Gap", "p", "q", "n", "Note")
    return capped(heads, shown, frozenset({5, 6, 7, 8}), note="The surest come first.")


def rate_listing(rows: pl.DataFrame, models: Sequence[str]) -> Listing:
    """List refused, empty and unreadable answers over all groups of a subset, a row a model and prompt."""
    columns = (("Refused", "refusal_rate"), ("Empty", "empty_rate"), ("Without a readable number", "unreadable_rate"))
    overall = where(rows, group=None, metric=tuple(metric for _, metric in columns))
    lookup = by(overall, "model", "attribute", "prompt", "metric")
    keys = sorted(
        {key[:3] for key in lookup}, key=lambda k: (models.index(k[0]), k[1] or "", prompts_in(rows).index(k[2]))
    )
    shown = [
        (
            key[0],
            attribute_title(key[1]),
            prompt_title(key[2]),
            *(share(lookup.get((*key, metric))) for _, metric in columns),
            count(next(row["n"] for name, row in lookup.items() if name[:3] == key)),
        )
        for key in keys
    ]
    heads = ("Model", "People differ in", "Prompt", *(head for head, _ in columns), "n")
    return capped(heads, shown, frozenset({3, 4, 5, 6}))


# --- Numbers that generative models give each group: words of competence, ratings, salaries; refusals and
# lengths.

WORDS = ("competence_words", "incompetence_words", "warmth_words", "coldness_words")
WORD_GAPS = tuple(metric.replace("_words", "_gap") for metric in WORDS)
COMPETENCE = (*WORDS, *WORD_GAPS, "min_competence_share")
RATINGS = ("rating", "salary", "rating_gap", "salary_gap", "unreadable_rate")
REFUSALS = ("refusal_rate", "refusal_rate_gap", "response_length", "response_length_ratio", "empty_rate")
OPEN = 1
"""Models whose ratings are shown; those of the others are folded."""


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(plain(table), metric=(*COMPETENCE, *RATINGS, *REFUSALS))
    parts = []
    for dataset in inputs.datasets_in(used["dataset"]):
        of_dataset = where(used, dataset=dataset)
        attributes = attributes_in(of_dataset)
        gaps = _gaps(where(of_dataset, metric=("rating_gap", "salary_gap")), inputs, dataset)
        parts += [Part(title=f"{dataset}: gaps of ratings and salaries", pictures=gaps)] if gaps else []
        for attribute in attributes:
            rows = where(of_dataset, attribute=attribute)
            words = where(rows, metric=COMPETENCE)
            competence = _competence(words, inputs, dataset, attribute)
            # What is not configured is said once.
            notes = _unconfigured(of_dataset) if attribute == attributes[0] else []
            parts += [replace(part, notes=notes) for part in competence]
            parts += _ratings(where(rows, metric=RATINGS), inputs, dataset, attribute)
            parts += _refusals(where(rows, metric=REFUSALS), inputs, dataset, attribute)
    return parts


def _gaps(rows: pl.DataFrame, inputs: ReportInputs, dataset: str) -> list[Picture]:
    models = models_in(rows, inputs)
    if len(models) < 2:
        return []
    title = f"Gaps of ratings and salaries between groups, {dataset}"
    return drawn([gap_figure(rows, inputs.reading, models, dataset=dataset, name="rating-gaps", title=title)])


def _competence(rows: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> list[Part]:
    overall = where(rows, occupation=None)
    shares = where(overall, metric="competence_words", definition="paper")
    if shares.is_empty():
        return []
    models, of = models_in(shares, inputs), f"{dataset}, {attribute_title(attribute)}"
    shown = group_figure(
        shares,
        models,
        name=f"competence-{dataset}-{attribute}",
        title=f"Words of competence, {of}",
        description="Of the words in answers about a group, function words left out: how many speak of competence, "
        "such as “skilled”.",
        axis="share of the words",
        share=True,
    )
    fewest = group_figure(
        where(overall, metric="min_competence_share"),
        models,
        name=f"min-competence-{dataset}-{attribute}",
        title=f"In how many occupations a group gets the fewest words of competence, {of}",
        description="Counted are occupations with enough scenes. The line is what chance gives each group.",
        axis="share of the occupations",
        share=True,
        line=lambda groups: 1 / groups,
    )
    further = [
        group_figure(
            where(overall, metric=metric, definition="paper").drop_nulls("group"),
            models,
            name=f"{metric}-{dataset}-{attribute}",
            title=f"Words of {metric.removesuffix('_words')}, {of}",
            description="Share of the words in answers about a group, function words left out.",
            axis="share of the words",
            share=True,
        )
        for metric in WORDS[1:]
    ]
    return [
        Part(
            title=f"{of_subset(dataset, attribute)}, words of competence and warmth",
            pictures=drawn([shown, fewest]),
            details=drawn(further),
            listings=_word_listings(rows, models),
        )
    ]


def _word_listings(rows: pl.DataFrame, models: list[str]) -> list[tuple[str, Listing]]:
    overall = where(rows, occupation=None)
    columns: list[Column] = [(f"Words of {m.removesuffix('_words')}", m, "paper", share) for m in WORDS]
    columns += [("Their number in an answer", "competence_words", "count", estimate)]
    gaps = {gap: (f"words of {gap.removesuffix('_gap')}", share) for gap in WORD_GAPS}
    return [
        ("Words of competence and warmth in numbers", numbers_listing(overall, models, _present(overall, columns))),
        ("Gaps in words of competence and warmth", gap_listing(where(rows, definition="paper"), gaps)),
    ]


def _present(rows: pl.DataFrame, columns: list[Column]) -> list[Column]:
    known = set(rows.drop_nulls("group").select("metric", "definition").unique().iter_rows())
    return [column for column in columns if column[1:3] in known]


def _unconfigured(rows: pl.DataFrame) -> list[str]:
    """Say why words of warmth, coldness and incompetence were not counted."""
    gone = rows.filter(pl.col("metric").is_in(WORDS[1:]), pl.col("group").is_null(), pl.col("value").is_nan())
    if gone.is_empty():
        return []
    names = [name.removesuffix("_words") for name in WORDS[1:] if name in set(gone["metric"])]
    return [f"Words of {listed(names)} were not counted: {gone['reason'][0] or 'no reason was recorded'}."]


def _ratings(rows: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> list[Part]:
    means = where(rows, metric=("rating", "salary"))
    if means.is_empty():
        return []
    models, names = models_in(means, inputs), {"dataset": dataset, "attribute": attribute}
    gaps = where(rows, metric=("rating_gap", "salary_gap"))
    pictures = drawn(
        rating_figure(where(means, model=model), where(gaps, model=model), model=model, **names) for model in models
    )
    columns: list[Column] = [
        ("Mean rating", "rating", "paper", estimate),
        ("Mean salary", "salary", "paper", salary),
        ("Without a readable number", "unreadable_rate", "paper", share),
    ]
    titles = {"rating_gap": ("ratings", estimate), "salary_gap": ("salaries", salary)}
    return [
        Part(
            title=f"{of_subset(dataset, attribute)}, ratings and salaries",
            notes=_unreadable(means),
            pictures=pictures[:OPEN],
            details=pictures[OPEN:],
            listings=[
                ("Ratings and salaries in numbers", numbers_listing(rows, models, columns)),
                ("Gaps between groups", gap_listing(gaps, titles)),
            ],
        )
    ]


def _unreadable(means: pl.DataFrame) -> list[str]:
    """Say which models did not answer which questions with numbers."""
    gone = means.filter(pl.col("value").is_null() | pl.col("value").is_nan()).sort("model", "prompt", "group")
    notes = []
    for (model, prompt), subset in gone.group_by("model", "prompt", maintain_order=True):
        groups = means.filter(pl.col("model") == model, pl.col("prompt") == prompt).height
        which = "" if subset.height == groups else f" for {subset.height} of {groups} groups"
        notes.append(f"{model}, {prompt_title(str(prompt))}: no mean{which}: {_why(subset['reason_codes'][0])}.")
    return notes


def _why(codes: str | None) -> str:
    """Return why there is no mean: its first reason."""
    if unreadable := reasons.find(codes, "unreadable_prompt"):
        return f"{unreadable.params['share']:.0%} of the answers to this prompt could not be read"
    return str((*reasons.decode(codes), "no reason was recorded")[0])


def _refusals(rows: pl.DataFrame, inputs: ReportInputs, dataset: str, attribute: str) -> list[Part]:
    if rows.is_empty():
        return []
    models, of = models_in(rows, inputs), f"{dataset}, {attribute_title(attribute)}"
    rates = where(rows, metric="refusal_rate").drop_nulls("group")
    lengths = where(rows, metric="response_length").drop_nulls("group")
    refused = bool((rates["value"].fill_nan(None) > 0).any())
    questions = [
        group_figure(
            rates,
            models,
            name=f"refusals-{dataset}-{attribute}",
            title=f"Refused answers, {of}",
            description="A model that refuses to speak of some people also looks less toxic about them.",
            axis="share of the answers that are refused",
            share=True,
        )
        if refused
        else None,
        group_figure(
            lengths,
            models,
            name=f"lengths-{dataset}-{attribute}",
            title=f"Length of the answers, {of}",
            description="Mean number of words of an answer about each group.",
            axis="words an answer",
        ),
    ]
    pictures = drawn(questions)
    columns: list[Column] = [
        ("Refused", "refusal_rate", "paper", share),
        ("Words an answer", "response_length", "paper", estimate),
        ("Empty", "empty_rate", "paper", share),
    ]
    titles = {
        "refusal_rate_gap": ("refusals", share),
        "response_length_ratio": ("lengths (longest over shortest)", estimate),
    }
    return [
        Part(
            title=f"{of_subset(dataset, attribute)}, refusals and lengths",
            notes=[] if refused else ["No answer about these groups was refused."],
            pictures=pictures[:1] if refused else [],
            details=pictures[1:] if refused else pictures,
            listings=[
                ("Refused, empty and unreadable answers by prompt", rate_listing(rows, models)),
                ("Refusals and lengths of each group", numbers_listing(rows, models, columns)),
                ("Gaps between groups", gap_listing(rows, titles)),
            ],
        )
    ]


CHAPTER = Chapter(
    anchor="ratings",
    title="How competent, how warm, what salary",
    lead="Models were asked for keywords, for ratings from 1 to 10 and for a salary. Do they find the same "
    "competence in everyone, give the same numbers, and answer about everyone at all?",
    parts=_parts,
    findings=gap_findings,
    method=(
        (
            "Words of competence and warmth",
            "Mean share of an answer's words that are among 861 published words of competence, function words left "
            "out; words of warmth, coldness and incompetence from the user's own dictionaries, where they are "
            "configured. Within every occupation that has enough scenes it is counted which group gets the fewest; "
            "where groups tie, each counts its part. Gaps: the highest minus the lowest mean of a group.",
        ),
        (
            "Ratings and salaries",
            "A number is read from the answer, also out of a sentence (“an 8 out of 10”, “$12 an hour” times 2,000). "
            "Answers without a usable number are left out and counted; where most answers to a prompt hold none, "
            "there is no mean, since those that do would be the model's own choice.",
        ),
        (
            "Refusals and lengths",
            "Refused are answers that an endpoint marks so or filters, and texts that match a documented list. "
            "Intervals resample whole scenes, p permutes groups within scenes; where that test finds no significant "
            "gap, the interval is let reach parity.",
        ),
    ),
)
