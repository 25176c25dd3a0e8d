"""What the audit file may have under `mitigations`."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from plumbline.classes import class_at
from plumbline.mitigation.methods import METHODS
from plumbline.mitigation.settings import BiasPromptsSettings, LogitAdjustmentSettings, MitigationSettings

SETTINGS: dict[str, type[MitigationSettings]] = {
    name: class_at(method.settings, below="plumbline.mitigation") for name, method in METHODS.items()
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
