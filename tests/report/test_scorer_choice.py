"""What the choice of a scorer changes, counted by hand."""

import polars as pl
from synthetic_language import FACES, OFFLINE, REAL

from plumbline.catalog.schema import metric_frame
from plumbline.report import Reading
from plumbline.report.chapters.generation import scorer_choice

BEFORE = {"condition": "before", "statistic": "estimate"}


def test_what_the_choice_of_a_scorer_changes_is_counted():
    """Of two prompts one keeps its worst-off group; of four occupations three stay among the widest."""
    jobs = {REAL: "abcde", OFFLINE: "ecbaz"}
    worst = {(REAL, "x"): "A", (REAL, "y"): "A", (OFFLINE, "x"): "A", (OFFLINE, "y"): "B"}
    rows = [
        {"metric": "max_score_share", "scorer": scorer, "prompt": prompt, "group": group, "value": value}
        for (scorer, prompt), first in worst.items()
        for group, value in {"A": 0.4, "B": 0.4, first: 0.6}.items()
    ] + [
        {"metric": "occupation_spread", "scorer": scorer, "prompt": "x", "occupation": job, "value": 1 / (2 + place)}
        for scorer, names in jobs.items()
        for place, job in enumerate(names)
    ]  # fmt: skip
    table = metric_frame(
        [
            {
                "model": "llava",
                "dataset": FACES,
                "attribute": "race_gender",
                "event": "toxicity",
                "definition": "paper",
                **BEFORE,
            }
            | r
            for r in rows
        ]
    )
    found = scorer_choice(table, Reading(scorers=(REAL, OFFLINE)))
    assert found.rows == [(OFFLINE, "1 of 2 (50%)", "3 of 4 (75%)")] and REAL in found.heads[0]
    turned = scorer_choice(table, Reading(scorers=(OFFLINE, REAL)))
    assert turned.rows == [(REAL, "1 of 2 (50%)", "3 of 4 (75%)")] and OFFLINE in turned.heads[0]
    assert scorer_choice(table.filter(pl.col("scorer") == REAL), Reading()) is None
