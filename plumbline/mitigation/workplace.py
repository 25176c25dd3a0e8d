"""What fitting a mitigation of texts may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.encoder import DualEncoder
from plumbline.mitigation.training import EpochStore, Progress
from plumbline.mitigation.training_rows import TrainingRows

EmbedTexts = Callable[[Sequence[str]], NDArray[np.float32]]
"""(b,) texts -> (b, d) float32 embeddings, as the encoder gives them, not normalised."""


@dataclass(frozen=True)
class Workplace:
    """What fitting a mitigation of texts may use.

    Attributes
    ----------
    encoder : DualEncoder
    embed : callable
        See `EmbedTexts`.
    rows : callable
        Attribute to the training rows that have a label of it; raises MetricError where there are none.
    seed : int
    store : EpochStore or None
        Where training is kept, so that it can be interrupted.
    progress : callable or None
    """

    encoder: DualEncoder
    embed: EmbedTexts
    rows: Callable[[str], TrainingRows]
    seed: int
    store: EpochStore | None = None
    progress: Progress | None = None
