"""The planted SocialCounterfactuals as published on Hugging Face: Parquet files with an image column.

Whole sets of the subset `race_gender`; what can be seen of them says `layouts/socialcounterfactuals.py`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from plumbline.world import faces
from plumbline.world.layouts.layout import Layout, bad_contents
from plumbline.world.layouts.socialcounterfactuals import CounterfactualSet, draw_sets

_FILES = ("data/train-00000-of-00002-b86d87e90a3c683f.parquet", "data/train-00001-of-00002-c29dd57916c6a14f.parquet")
_SETS = 20
_ROWS = 120
_GROUP = 50
_FAULTS = {
    "no bytes": "White male",
    "cut off": "White male",
    "text": "White male",
    "missing file": "White male",
    "unknown race": "Martian male",
    "same bytes, other gender": "White male",
    "same bytes, other gender again": "White female",
}
_BAD = {f"{_FILES[1]}/{_ROWS + position}": fault.removesuffix(" again") for position, fault in enumerate(_FAULTS)}


def _draw(root: Path, rng: np.random.Generator) -> pl.DataFrame:
    sets = list(draw_sets("race_gender", _SETS, rng))
    rows = [row for drawn in sets for row in _set_rows(drawn)]
    paths = iter([f"{file}/{row}" for file in _FILES for row in range(_ROWS)])
    truth = [drawn.truth(list(islice(paths, len(drawn.words)))) for drawn in sets]
    (root / _FILES[0]).parent.mkdir(parents=True)
    _write_rows(root / _FILES[0], rows[:_ROWS])
    _write_rows(root / _FILES[1], [*rows[_ROWS:], *_bad_rows(rng)])
    return pl.concat(truth)


def _set_rows(drawn: CounterfactualSet) -> list[dict[str, Any]]:
    set_id = f"{drawn.filename}_{drawn.rank}_{drawn.seed}"
    return [
        _row(faces.as_jpeg(image), caption, set_id, *words)
        for image, caption, words in zip(drawn.images, drawn.captions.values(), drawn.words)
    ]


def _row(data: bytes | None, caption: str, set_id: str, race: str, gender: str) -> dict[str, Any]:
    return {
        "image": None if data is None else {"bytes": data, "path": None},
        "caption": caption,
        "counterfactual_set": set_id,
        "a1": race,
        "a1_type": "race",
        "a2": gender,
        "a2_type": "gender",
        "a1a2": f"{race} {gender}",
    }


def _bad_rows(rng: np.random.Generator) -> list[dict[str, Any]]:
    contents: dict[str, bytes | None] = {**bad_contents(rng), "missing file": None}
    return [
        _row(
            contents[fault.removesuffix(" again")],
            f"a {words} librarian",
            "race_gender_librarian_7_4000000001",
            *words.split(),
        )
        for fault, words in _FAULTS.items()
    ]


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [("image", image), *((name, pa.string()) for name in rows[0] if name != "image")],
        metadata={"huggingface": '{"info": {"features": {"image": {"_type": "Image"}}}}'},
    )
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=_GROUP)


LAYOUT = Layout("socialcounterfactuals_parquet", _draw, _BAD)
"""240 good rows in two files, row groups of 50; the bad rows are the last ones of the second file."""
