"""What the audit file may have under `mitigations`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.encoders.encoder import DualEncoder
from plumbline.errors import MetricError
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.prompt_array import PromptArraySettings
from plumbline.mitigations.saner import SanerSettings
from plumbline.mitigations.settings import MitigationSettings
from plumbline.mitigations.text_mitigations import FitContext, FittedMitigation, TextMitigationSettings

SETTINGS: dict[str, type[MitigationSettings]] = {
    settings.model_fields["method"].default: settings
    for settings in (LogitAdjustmentSettings, BiasPromptsSettings, PromptArraySettings, SanerSettings)
}
"""Method -> its settings."""

if TYPE_CHECKING:
    AnyMitigation = MitigationSettings
else:
    AnyMitigation = Annotated[reduce(or_, SETTINGS.values()), Field(discriminator="method")]

DEFAULT_MITIGATIONS: dict[str, AnyMitigation] = {
    "logit_adjustment": LogitAdjustmentSettings(),
    "logit_adjustment_released": LogitAdjustmentSettings(selection="released"),
    "bias_prompts": BiasPromptsSettings(),
}
"""What an audit tries when its file names no mitigations: what needs no training."""


def fit_text_mitigation(settings: MitigationSettings, context: FitContext) -> FittedMitigation:
    """Fit a mitigation of texts; see `TextMitigationSettings.fit`.

    Raises
    ------
    MetricError
        If the settings are those of a mitigation that does not act on texts.
    """
    if not isinstance(settings, TextMitigationSettings):
        raise _not_of_texts(settings.method)
    return settings.fit(context)


def apply_text_mitigation(
    fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
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
        expected=", ".join(name for name, settings in SETTINGS.items() if issubclass(settings, TextMitigationSettings)),
    )
