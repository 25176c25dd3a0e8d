"""Fits of text mitigations to a cell, on the training split alone, and the mitigated texts of the cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from plumbline.errors import EncodingError, MetricError, StorageError
from plumbline.mitigations.registry import apply_text_mitigation
from plumbline.mitigations.retrieval import Places, Retrieval, places
from plumbline.mitigations.text_mitigations import FitContext, FittedMitigation, TextMitigationSettings
from plumbline.mitigations.training import Progress
from plumbline.mitigations.training_rows import ImageTextPairs, judged_rows

_NOTHING = np.zeros((0, 0), np.float32)


@dataclass(frozen=True)
class FittedTexts:
    """The fits of one method on a cell, and the cell's mitigated texts.

    Attributes
    ----------
    texts : tuple of str
        The m prompts of the cell's suites and captions of its images.
    before : (m, d) float32
        Their features as the encoder gives them.
    fits : mapping of str to FittedMitigation
        By id in the audit file.
    features : mapping of str to (m, d) float32
        The mitigated features, by id.
    absent : mapping of str to str
        What could not be fitted here, with the reason.
    retrieval : mapping of str to Retrieval
        By dataset of image-text pairs on which the fits are judged.
    """

    texts: tuple[str, ...] = ()
    before: NDArray[np.float32] = field(default_factory=lambda: _NOTHING)
    fits: Mapping[str, FittedMitigation] = field(default_factory=dict)
    features: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    retrieval: Mapping[str, Retrieval] = field(default_factory=dict)


def fit_text_mitigations(
    settings_of: Mapping[str, TextMitigationSettings],
    context: FitContext,
    *,
    records: pl.DataFrame,
    texts: Sequence[str],
    features: NDArray[np.float32],
    progress_of: Callable[[str], AbstractContextManager[Progress | None]] = lambda _: nullcontext(),
    where: str | None = None,
) -> FittedTexts:
    """Fit mitigations of texts to a cell, and apply each to the cell's texts; one that cannot be fitted is `absent`.

    Parameters
    ----------
    settings_of : mapping of str to TextMitigationSettings
        By id.
    context : FitContext
        What all of them may use; its `progress` is not used.
    records : DataFrame
        With `image_id` and `split`: no mitigation may be fitted on `judged_rows` of them.
    texts, features : sequence of m str, (m, d) float32
        The cell's texts with their features as the encoder gives them.
    progress_of : callable, optional
        Gives the progress of one training by the mitigation's id.
    where : str, optional
        The cell, for errors.

    Raises
    ------
    StorageError
        If a mitigation was fitted on judged images.
    """
    judged = set(records.filter(judged_rows(records))["image_id"])
    fits, mitigated, absent = {}, {}, {}
    for name, settings in settings_of.items():
        try:
            with progress_of(name) as progress:
                fitted = settings.fit(replace(context, progress=progress))
            if seen := judged.intersection(fitted.train_ids):
                raise StorageError(
                    f"the mitigation `{name}` was fitted on images that it would be judged on",
                    where=where,
                    found=f"{len(seen)} images",
                    expected="none",
                )
            changed = apply_text_mitigation(fitted, context.encoder, texts, features)
            if gone := [text for text, row in zip(texts, changed) if not row.any()]:
                raise MetricError(
                    f"the mitigation `{name}` leaves nothing of some texts, so that no image can match them",
                    where=where,
                    found=", ".join(gone[:3]),
                    hint="try fewer attributes, or a larger calibration",
                )
        except (MetricError, EncodingError) as error:
            absent[name] = error.what
        else:
            fits[name], mitigated[name] = fitted, changed
    return FittedTexts(tuple(texts), features, fits, mitigated, absent)


def judge_retrieval(fits: Mapping[str, FittedMitigation], context: FitContext, pairs: ImageTextPairs) -> Retrieval:
    """Let pairs find each other, by the encoder as it is and under each fitted mitigation.

    A mitigation that was trained on one of the images is not judged by them, nor one that a caption leaves no room for.
    """
    texts = tuple(dict.fromkeys(pairs.captions))
    features, known = context.embed(texts), set(pairs.image_ids)
    after: dict[str, Places] = {}
    absent: dict[str, str] = {}
    for name, fitted in fits.items():
        if seen := known.intersection(fitted.train_ids):
            absent[name] = f"it was trained on {len(seen)} of the {len(known)} images"
            continue
        try:
            after[name] = places(pairs, texts, apply_text_mitigation(fitted, context.encoder, texts, features))
        except (MetricError, EncodingError) as error:
            absent[name] = error.what
    return Retrieval(places(pairs, texts, features), after, absent, pairs.digest)
