"""The mitigations that act on text features, behind one interface: fitted from settings, applied to texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.encoder import DualEncoder
from plumbline.mitigation.entries import SETTINGS
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.settings import MitigationSettings, TextMitigationSettings
from plumbline.mitigation.workplace import Workplace


def fit_text_mitigation(settings: MitigationSettings, work: Workplace) -> FittedMitigation:
    """Fit a mitigation of texts; see `TextMitigationSettings.fit`.

    Raises
    ------
    TypeError
        If the settings are those of a mitigation that does not act on texts.
    """
    if not isinstance(settings, TextMitigationSettings):
        raise TypeError(f"{settings.method} does not act on texts")
    return settings.fit(work)


def apply_text_mitigation(
    fitted: FittedMitigation,
    encoder: DualEncoder,
    texts: Sequence[str],
    features: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Return the mitigated (n, d) features of texts, each as long as its row of `features`.

    Parameters
    ----------
    texts : sequence of n str
    features : (n, d) float32
        Of the same texts, as the encoder gives them.
    """
    settings = SETTINGS[fitted.method]
    if not issubclass(settings, TextMitigationSettings):
        raise TypeError(f"{fitted.method} does not act on texts")
    return settings.apply(fitted, encoder, texts, features)
