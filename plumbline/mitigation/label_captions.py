"""Captions for images that have none: one sentence of the dataset's own labels."""

from __future__ import annotations

import polars as pl

from plumbline.tables.suites import with_article

_NOUNS = {"man": "man", "woman": "woman"}
_AGES = {
    "child": "child", "young_adult": "young adult", "middle_aged": "middle-aged", "more than 70": "over 70",
}  # fmt: skip


def label_captions(records: pl.DataFrame) -> tuple[str, ...]:
    """Return a caption for every record: its own where the dataset has one, else made of its labels.

    Such as `a photo of a Black woman, 20-29 years old` or `a photo of an Indian man, doctor`. Labels that an image
    lacks are left out; without any label it is `a photo of a person`.
    """
    return tuple(row.get("caption") or _caption(row) for row in records.to_dicts())


def _caption(row: dict[str, str | None]) -> str:
    race = (row.get("race") or "").replace("_", " or ").strip()
    noun = _NOUNS.get(row.get("gender") or "", "person")
    text = f"a photo of {with_article(f'{race} {noun}'.strip())}"
    age = row.get("age_group") or row.get("age")
    if age:
        text += (
            f", {_AGES[age]}"
            if age in _AGES
            else f", {age.replace('_', ' ')}" + (" years old" if age[0].isdigit() else "")
        )
    return text + (f", {row['occupation']}" if row.get("occupation") else "")
