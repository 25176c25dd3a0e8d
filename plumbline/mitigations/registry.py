"""Registry of the methods that the audit file may name under `mitigations`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.encoders.encoder import DualEncoder
from plumbline.mitigations.bias_prompts import BiasPromptsSettings
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.prompt_array import PromptArraySettings
from plumbline.mitigations.saner import SanerSettings
from plumbline.mitigations.settings import MitigationSettings
from plumbline.mitigations.text_mitigations import FittedMitigation, TextMitigationSettings

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


def apply_text_mitigation(
    fitted: FittedMitigation, encoder: DualEncoder, texts: Sequence[str], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the features of texts under a fitted mitigation, see `TextMitigationSettings.apply`."""
    settings = cast("type[TextMitigationSettings]", SETTINGS[fitted.method])
    return settings.apply(fitted, encoder, texts, features)
