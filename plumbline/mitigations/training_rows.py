"""What a mitigation may be trained on: the training split's images, labels and captions, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.catalog.suites import with_article
from plumbline.digests import digest_bytes, digest_sequence
from plumbline.errors import MetricError
from plumbline.statistics.groups import label_codes
from plumbline.statistics.seeds import generator

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


TRAIN = "train"
AGES = ("age_group", "age")


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a training split that have a label of the attribute.

    Attributes
    ----------
    images : (n, d) float32
        Embeddings as the encoder gives them.
    groups : tuple of str
        Names of the attribute's labels, sorted.
    labels : (n,) int64
        Position in `groups`.
    captions : tuple of str
        Length n: each image's own caption, or one made of its labels.
    image_ids : tuple of str
    """

    images: NDArray[np.float32]
    groups: tuple[str, ...]
    labels: NDArray[np.int64]
    captions: tuple[str, ...]
    image_ids: tuple[str, ...]


def is_training_row(records: pl.DataFrame) -> NDArray[np.bool_]:
    """Return the (n,) mask of the training split; mitigations are judged on none of these rows."""
    return (records["split"] == TRAIN).fill_null(False).to_numpy()


def training_rows(
    records: pl.DataFrame,
    images: NDArray[np.float32],
    *,
    attribute: str,
    labelled: bool = True,
    judged_elsewhere: bool = False,
) -> TrainingRows:
    """Choose the rows of the training split that have a label of an attribute.

    Parameters
    ----------
    records : DataFrame
        Of the dataset, n rows, in the order of `images`.
    attribute : str
        `gender`, `race` or `age` (the age group, or the age where there is no group).
    labelled : bool
        False: where the dataset has no label of the attribute at all, all its training rows, as of one group. For
        methods that read captions alone.
    judged_elsewhere : bool
        Whether what is fitted is judged on another dataset: then every row may be one of training, and a dataset that
        says no split is all training.

    Raises
    ------
    MetricError
        If the dataset has no training split, or nothing else, or no two groups of the attribute in it.
    """
    known = (attribute,) if attribute != "age" else AGES
    column = next((c for c in known if c in records.columns and records[c].null_count() < records.height), None)
    train = is_training_row(records)
    if judged_elsewhere and records["split"].null_count() == records.height:
        train = np.ones(records.height, bool)
    if train.all() and not judged_elsewhere:
        raise MetricError("every image is a training image: none is left to judge a mitigation on")
    if column is None and not labelled and train.any():
        rows = np.flatnonzero(train)
        return _chosen(records, images, rows, ("all",), np.zeros(len(rows), np.int64))
    if column is None or not train.any():
        raise MetricError(
            f"there are no rows to train on: rows whose split is `{TRAIN}`, with labels of `{attribute}`, are needed",
            found=f"{int(train.sum())} training rows, {'no' if column is None else 'with'} labels of {attribute}",
            expected=f"rows with split `{TRAIN}`",
            hint="map a column to `split`, or leave this mitigation out for this dataset",
        )
    groups = tuple(sorted(records.filter(pl.Series(train))[column].drop_nulls().unique()))
    codes = label_codes(records[column], groups)
    rows = np.flatnonzero(train & (codes >= 0))
    if len(groups) < 2:
        raise MetricError(
            f"the training split has fewer than two groups of `{attribute}`", found=", ".join(groups) or "none"
        )
    return _chosen(records, images, rows, groups, codes[rows])


def _chosen(
    records: pl.DataFrame,
    images: NDArray[np.float32],
    rows: NDArray[np.int64],
    groups: tuple[str, ...],
    labels: NDArray[np.int64],
) -> TrainingRows:
    chosen = records[rows]
    return TrainingRows(
        images=images[rows],
        groups=groups,
        labels=labels,
        captions=label_captions(chosen),
        image_ids=tuple(chosen["image_id"].to_list()),
    )


@dataclass(frozen=True)
class ImageTextPairs:
    """Captions with the images that they are of; several captions may be of one image, and nobody is labelled.

    Attributes
    ----------
    images : (n, d) float32
        Embeddings of distinct images as the encoder gives them.
    image_ids : tuple of str
        Length n.
    captions : tuple of str
        Length m.
    image_of : (m,) int64
        Position of each caption's image.
    """

    images: NDArray[np.float32]
    image_ids: tuple[str, ...]
    captions: tuple[str, ...]
    image_of: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """Return the sha256 of images and captions."""
        whose = [self.image_ids[i] for i in self.image_of]
        return digest_sequence([digest_bytes(self.images.astype("<f4").tobytes()), *whose, *self.captions])

    def taken(self, rows: NDArray[np.int64]) -> ImageTextPairs:
        """Return some of the m pairs, with the images of these alone."""
        used, image_of = np.unique(self.image_of[rows], return_inverse=True)
        ids, captions = (self.image_ids[i] for i in used), (self.captions[row] for row in rows)
        return ImageTextPairs(self.images[used], tuple(ids), tuple(captions), image_of.astype(np.int64))

    def as_many_as(self, number: int, *, seed: int) -> ImageTextPairs:
        """Return a number of pairs, drawn without replacement; where there are fewer, they come again in turn."""
        drawn = generator(seed, "image_text_pairs").permutation(len(self.captions))
        return self.taken(np.resize(drawn, number).astype(np.int64))

    def rows(self) -> TrainingRows:
        """Return a training row for each pair, all of one group."""
        return TrainingRows(
            images=self.images[self.image_of],
            groups=("all",),
            labels=np.zeros(len(self.captions), np.int64),
            captions=self.captions,
            image_ids=tuple(self.image_ids[i] for i in self.image_of),
        )


def captioned_images(records: pl.DataFrame, *, training: bool) -> pl.DataFrame:
    """Return the rows of a dataset that have a caption of their own and are of the training split, or are not.

    Parameters
    ----------
    training : bool
        Which. Of a dataset that says no split it is everything, either way: who judges by it must ask what was trained
        on.

    Raises
    ------
    MetricError
        If there is no caption at all, or training is asked of a dataset whose splits are others.
    """
    captioned = records.filter(pl.col("caption").is_not_null())
    if captioned.is_empty():
        raise MetricError(
            "a dataset of image-text pairs has no captions",
            found=f"{records.height} images",
            expected="records with a `caption`",
        )
    train = is_training_row(captioned)
    if captioned["split"].null_count() == captioned.height:
        train = np.full(captioned.height, training)
    chosen = captioned.filter(pl.Series(train == training))
    if training and chosen.is_empty():
        raise MetricError(
            "there are no image-text pairs to train on",
            found=", ".join(captioned["split"].drop_nulls().unique().sort()),
            expected=f"rows with split `{TRAIN}`, or no splits",
        )
    return chosen


def image_text_pairs(captioned: pl.DataFrame, images: NDArray[np.float32]) -> ImageTextPairs:
    """Return the pairs of some records.

    Parameters
    ----------
    captioned : DataFrame
        From `captioned_images`: m rows.
    images : (n, d) float32
        Of its distinct images, in the order in which they come first.
    """
    ids = captioned["image_id"].unique(maintain_order=True)
    position = dict(zip(ids, range(len(ids))))
    image_of = np.array([position[image_id] for image_id in captioned["image_id"]], dtype=np.int64)
    return ImageTextPairs(images, tuple(ids), tuple(captioned["caption"]), image_of)


def judged_rows(records: pl.DataFrame) -> pl.Series:
    """Return the (n,) mask of the rows on which mitigations of texts are judged: all but the training split.

    Where every row is of the training split, all are judged, and nothing can be trained.
    """
    train = is_training_row(records)
    return pl.Series("judged", np.ones(len(train), bool) if train.all() else ~train)
