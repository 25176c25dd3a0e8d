"""What every mitigation of texts is once it is fitted: plain arrays, with what they were fitted on and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FittedMitigation:
    """A fitted mitigation.

    Attributes
    ----------
    settings : mapping
        Every setting, `method` among them, as JSON values; the seed too where one was used.
    parameters : mapping of str to array
        What applies it, by name; float32, saved as safetensors.
    losses : mapping of str to (steps,) float64
        Loss curves by name; empty where nothing is trained.
    fitted_on : str
        Digest of all that the parameters depend on: encoder, texts, training rows, settings, code version.
    train_ids : tuple of str
        Image ids of the rows that were fitted on; empty where no image was used.
    """

    settings: Mapping[str, Any]
    parameters: Mapping[str, NDArray[np.float32]]
    fitted_on: str
    losses: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    train_ids: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """Return the method's name."""
        return str(self.settings["method"])
