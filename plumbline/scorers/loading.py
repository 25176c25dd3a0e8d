"""From settings of the audit file to a scorer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plumbline.scorers.scorer import Scorer
from plumbline.scorers.settings import (
    AnyScorerSettings,
    ClassifierSettings,
    PerspectiveSettings,
    StoredSettings,
)

if TYPE_CHECKING:
    from plumbline.encoders.encoder import Placement


def load_scorer(
    settings: AnyScorerSettings,
    *,
    project: Path,
    fetched: Path,
    placement: Placement,
) -> Scorer:
    """Return the scorer that settings describe.

    Parameters
    ----------
    project : Path
        Where relative paths start.
    fetched : Path
        Folder in which `plumbline fetch` keeps what it got.
    placement : Placement
        Where a model runs.

    Raises
    ------
    CheckpointError
        If a classifier is not on disk or not one that can be loaded; nothing is downloaded.
    ConfigError
        If its labels cannot be matched.
    ScoringError
        If stored scores cannot be read.
    """
    # Each kind is imported where it is wanted: the default run needs neither torch nor an HTTP client for it.
    if isinstance(settings, ClassifierSettings):
        from plumbline.scorers.classifier import load_classifier

        return load_classifier(settings, project=project, fetched=fetched, placement=placement)
    if isinstance(settings, PerspectiveSettings):
        from plumbline.scorers.perspective import PerspectiveScorer

        return PerspectiveScorer(settings)
    if isinstance(settings, StoredSettings):
        from plumbline.scorers.stored import StoredScorer
        from plumbline.scorers.stored_table import read_stored

        return StoredScorer(
            read_stored((project / Path(settings.path).expanduser()).resolve(), settings.columns)
        )
    from plumbline.scorers.offline import OfflineScorer

    return OfflineScorer()
