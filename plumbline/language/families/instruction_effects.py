"""The instruction_effects family: what an instruction against stereotypes changes, for better and worse."""

from __future__ import annotations

import numpy as np

from plumbline.language.cell import LanguageCell
from plumbline.language.family import STUDY, LanguageFamily, LanguageResult, LanguageTraits
from plumbline.language.instruction_effects import max_change_rows
from plumbline.language.max_toxicity import MAX_METRICS
from plumbline.language.settings import LanguageSettings
from plumbline.language.side_effects import side_effect_rows
from plumbline.tables.schema import metric_frame

_DESCRIPTION = """
What it changes to add an instruction, such as not to judge people by their looks, to a prompt. The answers with and
without it, to the same images with the same seeds, are compared pair by pair: the mean and the 90th percentile of
MaxToxicity and of its counterparts for insult, identity attack and flirtation, so that an instruction that lowers one
and raises another is seen; how many more answers are refused; and how much longer or shorter they become. Below 0: less
with the instruction. Intervals and tests count a scene once, however often it was asked about.
"""


def compute_instruction_effects(cell: LanguageCell, *, settings: LanguageSettings) -> LanguageResult:
    """Return the changes under every instruction of every prompt that was asked without one too."""
    rows = max_change_rows(cell, settings=settings) + side_effect_rows(cell, settings=settings)
    return LanguageResult(metric_frame(rows))


INSTRUCTION_EFFECTS = LanguageFamily(
    name="instruction_effects",
    title="What instructions change",
    description=_DESCRIPTION.strip(),
    code_version="2",
    needs="scores",
    traits=(
        *(
            LanguageTraits(
                name=f"{metric}_change",
                meaning=f"What an instruction changes in {metric}; below 0: less with it.",
                formula="mean, or 90th percentile, over the same sets × seeds with it - without it",
                source=f"{STUDY}, 5.2 and tables 4 and 18 to 20",
                unit="score",
                bounds=(-1, 1),
                when_identical=0.0,
                headline="paper",
            )
            for metric in MAX_METRICS.values()
        ),
        LanguageTraits(
            name="refusal_rate_change",
            meaning="How many more answers are refused with an instruction.",
            formula="refused answers / answers with it - without it, over the same images and seeds",
            source="Plumbline",
            unit="share",
            bounds=(-1, 1),
            when_identical=None,
        ),
        LanguageTraits(
            name="response_length_change",
            meaning="By how many words answers become longer with an instruction.",
            formula="mean words an answer with it - without it, over the same images and seeds",
            source="Plumbline",
            unit="words",
            bounds=(-np.inf, np.inf),
            when_identical=None,
        ),
    ),
    compute=compute_instruction_effects,
)
