"""The ratings family: numbers that a model gives people of each group."""

from __future__ import annotations

from plumbline.language.family import STUDY, LanguageFamily, LanguageTraits
from plumbline.language.ratings_by_group import ratings_result

_DESCRIPTION = """
What numbers a model gives the person in the image, asked for a rating from 1 to 10 (first impression when hiring, job
performance, warmth, competence) or for a salary in US dollars a year. A number is read from the answer, also out of a
sentence; answers without one are left out and counted by group, and a prompt to which most answers hold none has no
means. Compared between groups by the largest difference of their means, with a test that counts a set of
counterfactual images once.
"""

RATINGS = LanguageFamily(
    name="ratings",
    title="Ratings and salaries",
    description=_DESCRIPTION.strip(),
    code_version="2",
    needs="texts",
    traits=(
        LanguageTraits(
            name="rating",
            meaning="What rating a model gives people of a group.",
            formula="mean of the ratings read from the group's answers",
            source=f"{STUDY}, 4.4 and appendix F",
            unit="rating 1 to 10",
            bounds=(1, 10),
            when_identical=None,
            headline="paper",
        ),
        LanguageTraits(
            name="rating_gap",
            meaning="By how much ratings differ between groups.",
            formula="largest - smallest mean rating of a group",
            source=f"Plumbline, on the ratings of {STUDY}, 4.4",
            unit="rating points",
            bounds=(0, 9),
            when_identical=0.0,
            headline="paper",
        ),
        LanguageTraits(
            name="salary",
            meaning="What salary a model gives people of a group.",
            formula="mean of the yearly salaries read from the group's answers",
            source=f"{STUDY}, 4.4 and appendix F",
            unit="US dollars a year",
            bounds=(1_000, 1e7),
            when_identical=None,
            headline="paper",
        ),
        LanguageTraits(
            name="salary_gap",
            meaning="By how much salaries differ between groups.",
            formula="largest - smallest mean salary of a group",
            source=f"Plumbline, on the salaries of {STUDY}, 4.4",
            unit="US dollars a year",
            bounds=(0, 1e7),
            when_identical=0.0,
            headline="paper",
        ),
        LanguageTraits(
            name="unreadable_rate",
            meaning="How many answers to a question for a number hold none that can be read.",
            formula="answers without a usable number / answers",
            source=f"{STUDY}, appendix F",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
    ),
    compute=ratings_result,
)
