"""The max_toxicity family: how far the scores of texts about the people of one scene lie apart."""

from __future__ import annotations

import polars as pl

from plumbline.language.cell import LanguageCell
from plumbline.language.family import STUDY, LanguageFamily, LanguageResult, LanguageTraits
from plumbline.language.max_toxicity import MAX_METRICS, max_toxicity_rows
from plumbline.language.occupations import OCCUPATION_SCORES, occupation_results
from plumbline.language.scored_blocks import every_question
from plumbline.language.scorer_agreement import scorer_agreement_rows
from plumbline.language.set_spreads import set_spreads
from plumbline.language.settings import LanguageSettings
from plumbline.language.toxicity_by_group import group_score_rows
from plumbline.language.worst_off import worst_off_rows
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES
from plumbline.tables.schema import Row, metric_frame

_DESCRIPTION = """
How differently a model speaks of people who differ only in race, gender, body or age. Each counterfactual set shows one
scene with the person changed. Scorers rate every answer for toxicity, insult, identity attack and flirtation;
MaxToxicity of a set is its highest minus its lowest score, 0 where all its people are spoken of alike. Shown are the
mean and the 90th percentile over sets and seeds (the mean hides that a tenth of the sets may get an offensive text),
with and without answers that the model refused, which group is the worst off in the sets furthest apart, the scores of
each group, the occupations with the largest differences, and how far scorers agree. Intervals and tests count a scene
once, however often it was asked about.
"""


def compute_max_toxicity(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return the rows of all questions that have scores, and the table `occupation_scores`."""
    rows: list[Row] = []
    tables = [pl.DataFrame(schema=OCCUPATION_SCORES)]
    with every_question(cell) as questions:
        for scored in questions:
            spreads = set_spreads(scored, cell.expected)
            rows += max_toxicity_rows(scored, spreads, cell.expected, settings=settings)
            rows += worst_off_rows(scored, spreads, cell.expected, settings=settings)
            rows += group_score_rows(scored, settings=settings)
            rows += scorer_agreement_rows(scored, settings=settings)
            of_occupations, table = occupation_results(scored, settings=settings)
            rows += of_occupations
            tables.append(table)
    return LanguageResult(metric_frame(rows), {"occupation_scores": pl.concat(tables)})


MAX_TOXICITY = LanguageFamily(
    name="max_toxicity",
    title="Toxicity of what is said of people in the same scene",
    description=_DESCRIPTION.strip(),
    code_version="3",
    needs="scores",
    traits=(
        *(
            LanguageTraits(
                name=metric,
                meaning=f"How differently, in {scored.replace('_', ' ')}, the people of one scene are spoken of.",
                formula=(
                    "mean, or 90th percentile, over sets × seeds of max_i s_i - min_i s_i, s_i the score of "
                    "image i of the set"
                ),
                source=f"{STUDY}, equations 1 to 4 and tables 1 and 10 to 13",
                unit="score",
                bounds=(0, 1),
                when_identical=0.0,
                headline="paper",
            )
            for scored, metric in MAX_METRICS.items()
        ),
        # Undefined where all are spoken of alike: no set then lies above the 90th percentile.
        LanguageTraits(
            name="worst_off_share",
            meaning="How often a group is the one spoken of worst, in the sets that lie furthest apart.",
            formula="|sets × seeds above the 90th percentile in which the group has the maximum| / |those|",
            source=f"{STUDY}, figures 2 and 6",
            unit="share",
            bounds=(0, 1),
            when_identical=float("nan"),
            headline="paper",
        ),
        *(
            LanguageTraits(
                name=scored,
                meaning=f"How high answers about a group score in {scored.replace('_', ' ')}.",
                formula="mean, and 90th percentile, of the scores of the group's answers",
                source=f"{STUDY}, table 9",
                unit="score",
                bounds=(0, 1),
                when_identical=None,
                headline="score",
            )
            for scored in SCORED_ATTRIBUTES
        ),
        LanguageTraits(
            name="occupation_spread",
            meaning="How far the groups' scores lie apart in answers about one occupation.",
            formula="standard deviation over groups of the group's mean score",
            source=f"{STUDY}, C.3 and figure 5",
            unit="score",
            bounds=(0, 1),
            when_identical=0.0,
        ),
        LanguageTraits(
            name="scorer_agreement",
            meaning="How far two scorers agree on the same answers.",
            formula="correlation of their scores over answers: Pearson's or Spearman's",
            source="Plumbline",
            unit="correlation",
            bounds=(-1, 1),
            when_identical=None,
        ),
    ),
    compute=compute_max_toxicity,
    tables={"occupation_scores": OCCUPATION_SCORES},
)
