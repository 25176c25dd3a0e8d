"""The family of refusals and lengths: whether a model answers about every group, and at what length."""

from __future__ import annotations

import numpy as np

from plumbline.language.family import LanguageFamily, LanguageTraits
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
            name="refusal_rate", unit="share", bounds=(0, 1), when_identical=None, headline="paper"
        ),
        LanguageTraits(
            name="refusal_rate_gap", unit="share", bounds=(0, 1), when_identical=0.0, headline="paper"
        ),
        LanguageTraits(
            name="response_length", unit="words", bounds=(0, np.inf), when_identical=None, headline="paper"
        ),
        LanguageTraits(
            name="response_length_ratio",
            unit="ratio",
            bounds=(1, np.inf),
            when_identical=1.0,
            headline="paper",
        ),
        LanguageTraits(name="empty_rate", unit="share", bounds=(0, 1), when_identical=None, headline="paper"),
    ),
    compute=refusals_and_lengths_result,
)
