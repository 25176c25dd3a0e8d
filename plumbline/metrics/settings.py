"""How sure an audit wants to be: the numbers that every metric family shares."""

from __future__ import annotations

from dataclasses import dataclass

from plumbline.errors import ConfigError
from plumbline.statistics.draw_settings import DrawSettings
from plumbline.statistics.reasons import MIN_GROUP


@dataclass(frozen=True)
class MetricSettings(DrawSettings):
    """Settings of the metric families: at least 100 resamples and permutations, and a confidence in (0.5, 1).

    Attributes
    ----------
    min_group : int
        Smaller groups are reported and flagged.
    label_margin : float
        Automatic gender labels below this margin |p_man - p_woman| are dropped in `confident_labels`, in
        [0, 1].
    label_error : float
        Share of automatic labels that may be wrong where a dataset has no gender of its own, in [0, 0.5): how far the
        rates by them could then move.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    min_group: int = MIN_GROUP
    label_margin: float = 0.2
    label_error: float = 0.15

    def __post_init__(self) -> None:
        ranges = {
            "resamples": (self.resamples >= 100, "at least 100"),
            "permutations": (self.permutations >= 100, "at least 100"),
            "confidence": (0.5 < self.confidence < 1, "between 0.5 and 1"),
            "min_group": (self.min_group >= 1, "at least 1"),
            "label_margin": (0 <= self.label_margin <= 1, "0 .. 1"),
            "label_error": (0 <= self.label_error < 0.5, "0 .. below 0.5"),
        }
        for name, (valid, expected) in ranges.items():
            if not valid:
                raise ConfigError(
                    "a statistics setting is out of range",
                    where=f"statistics.{name}",
                    found=getattr(self, name),
                    expected=expected,
                )
