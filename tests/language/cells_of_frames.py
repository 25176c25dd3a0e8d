"""Language cells of frames in memory."""

import polars as pl

from plumbline.catalog.schema import SCORE_SCHEMA
from plumbline.language.cell import DESCRIBED_SCHEMA, EXPECTED_SCHEMA, LanguageCell


def cell_of_frames(model, generations, scores, expected, **more):
    return LanguageCell(
        model,
        generations.select(list(DESCRIBED_SCHEMA)).cast(pl.Schema(DESCRIBED_SCHEMA)).lazy(),
        scores.select(list(SCORE_SCHEMA)).cast(pl.Schema(SCORE_SCHEMA)).lazy(),
        expected.select(list(EXPECTED_SCHEMA)).cast(pl.Schema(EXPECTED_SCHEMA)),
        **more,
    )
