"""Tables of the report about numbers of each group: words of competence, ratings, salaries, refusals, lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from plumbline.report.language_listings import capped
from plumbline.report.language_words import prompt_title, prompts_in
from plumbline.report.listings import Listing, estimate, share
from plumbline.report.numbers import bare_p, count, interval, money, with_interval
from plumbline.report.rows import Row, by, defined, in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

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
    found = by(rows.drop_nulls("group"), "model", "prompt", "group", "metric", "definition")
    keys = {key[:3] for key in found}
    shown = []
    for model in models:
        for prompt in prompts_in(rows):
            for group in in_order(rows["group"], ()):
                if (model, prompt, group) not in keys:
                    continue
                own = [
                    found.get((model, prompt, group, metric, definition))
                    for _, metric, definition, _ in columns
                ]
                known = [row for row in own if row]
                if not known:
                    continue
                cells = (written(row) for row, (*_, written) in zip(own, columns))
                reasons = dict.fromkeys(row["reason"] for row in known if row["reason"])
                labels = (model, prompt_title(prompt), group_title(group))
                shown.append((*labels, *cells, count(known[0]["n"]), "; ".join(reasons)))
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
        [pl.coalesce(pl.col("q").fill_nan(None), pl.col("p").fill_nan(None)), "model", "prompt"],
        nulls_last=True,
    )
    shown = []
    for row in ordered.to_dicts():
        title, written = titles[row["metric"]]
        labels = (row["model"], attribute_title(row["attribute"]), title, prompt_title(row["prompt"]))
        tests = (bare_p(row["p"]), bare_p(row["q"]))
        shown.append(
            (*labels, row["occupation"] or "all", written(row), *tests, count(row["n"]), row["reason"] or "")
        )
    heads = ("Model", "People differ in", "Gap of", "Prompt", "Occupation", "Gap", "p", "q", "n", "Note")
    return capped(heads, shown, frozenset({5, 6, 7, 8}), note="The surest come first.")


def rate_listing(rows: pl.DataFrame, models: Sequence[str]) -> Listing:
    """List refused, empty and unreadable answers over all groups of a subset, a row a model and prompt."""
    columns = (
        ("Refused", "refusal_rate"),
        ("Empty", "empty_rate"),
        ("Without a readable number", "unreadable_rate"),
    )
    overall = where(rows, group=None, metric=tuple(metric for _, metric in columns))
    found = by(overall, "model", "attribute", "prompt", "metric")
    keys = sorted(
        {key[:3] for key in found},
        key=lambda k: (models.index(k[0]), k[1] or "", prompts_in(rows).index(k[2])),
    )
    shown = [
        (
            key[0],
            attribute_title(key[1]),
            prompt_title(key[2]),
            *(share(found.get((*key, metric))) for _, metric in columns),
            count(next(row["n"] for name, row in found.items() if name[:3] == key)),
        )
        for key in keys
    ]
    heads = ("Model", "People differ in", "Prompt", *(head for head, _ in columns), "n")
    return capped(heads, shown, frozenset({3, 4, 5, 6}))
