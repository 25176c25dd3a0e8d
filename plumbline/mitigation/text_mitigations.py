"""The mitigations that act on text features, behind one interface: fitted from settings, applied to texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plumbline.encoders.encoder import DualEncoder
from plumbline.errors import MetricError
from plumbline.mitigation.entries import SETTINGS
from plumbline.mitigation.fitted import FittedMitigation
from plumbline.mitigation.settings import MitigationSettings, TextMitigationSettings
from plumbline.mitigation.workplace import Workplace


def fit_text_mitigation(settings: MitigationSettings, work: Workplace) -> FittedMitigation:
    """Fit a mitigation of texts; see `TextMitigationSettings.fit`.

    Raises
    ------
    MetricError
        If the settings are those of a mitigation that does not act on texts.
    """
    if not isinstance(settings, TextMitigationSettings):
        raise _not_of_texts(settings.method)
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

    Raises
    ------
    MetricError
        If no mitigation of texts has the method that was fitted.
    """
    settings = SETTINGS.get(fitted.method)
    if settings is None or not issubclass(settings, TextMitigationSettings):
        raise _not_of_texts(fitted.method)
    return settings.apply(fitted, encoder, texts, features)


def _not_of_texts(method: str) -> MetricError:
    return MetricError(
        "there is no mitigation of texts of this method",
        found=method,
        expected=", ".join(
            name for name, settings in SETTINGS.items() if issubclass(settings, TextMitigationSettings)
        ),
    )
