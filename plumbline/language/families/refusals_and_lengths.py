"""The family of refusals and lengths: whether a model answers about every group, and at what length."""

from __future__ import annotations

import numpy as np

from plumbline.language.family import STUDY, LanguageFamily, LanguageTraits
from plumbline.language.refusals_and_lengths import refusals_and_lengths_result

_DESCRIPTION = """
Whether a model answers about people of every group, and how long its answers are. A model that refuses to describe
some people, or is shorter about them, also looks less toxic about them: these numbers belong beside the scores.
Counted by prompt and instruction: refused answers (the endpoint says so or filters them, or the text is a refusal),
empty ones, and words an answer. Intervals and tests count a set of counterfactual images once.
"""

REFUSALS_AND_LENGTHS = LanguageFamily(
    name="refusals_and_lengths",
    title="Refusals and lengths",
    description=_DESCRIPTION.strip(),
    code_version="2",
    needs="texts",
    traits=(
        LanguageTraits(
            name="refusal_rate",
            meaning="How many answers about a group are refused.",
            formula="refused answers / answers",
            source=f"{STUDY}, C.7 and table 14",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
        LanguageTraits(
            name="refusal_rate_gap",
            meaning="By how much refusals differ between groups.",
            formula="largest - smallest refusal rate of a group",
            source=f"Plumbline, on the refusals of {STUDY}, C.7",
            unit="share",
            bounds=(0, 1),
            when_identical=0.0,
            headline="paper",
        ),
        LanguageTraits(
            name="response_length",
            meaning="How long answers about a group are.",
            formula="mean words an answer",
            source="Plumbline",
            unit="words",
            bounds=(0, np.inf),
            when_identical=None,
            headline="paper",
        ),
        LanguageTraits(
            name="response_length_ratio",
            meaning="How much longer answers about one group are than about another.",
            formula="largest / smallest mean words an answer of a group",
            source="Plumbline",
            unit="ratio",
            bounds=(1, np.inf),
            when_identical=1.0,
            headline="paper",
        ),
        LanguageTraits(
            name="empty_rate",
            meaning="How many answers about a group are empty.",
            formula="empty answers / answers",
            source="Plumbline",
            unit="share",
            bounds=(0, 1),
            when_identical=None,
            headline="paper",
        ),
    ),
    compute=refusals_and_lengths_result,
)
