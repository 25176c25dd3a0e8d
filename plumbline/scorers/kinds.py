"""The kinds of scorers: what the audit file may have under `scorers`."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from plumbline.imports import import_class
from plumbline.scorers.scorer import ScorerSettings

KINDS = {
    "offline": "offline:OfflineSettings",
    "own": "own:OwnSettings",
    "classifier": "classifier:ClassifierSettings",
    "perspective": "perspective:PerspectiveSettings",
    "stored": "stored:StoredSettings",
}
"""Kind, to `module:Class` of its settings below `plumbline.scorers`; the class has the kind as its literal `kind`."""


SCORER_SETTINGS: dict[str, type[ScorerSettings]] = {
    kind: import_class(place, below="plumbline.scorers") for kind, place in KINDS.items()
}
"""Kind -> its settings."""

if TYPE_CHECKING:
    AnyScorer = ScorerSettings
else:
    AnyScorer = Annotated[reduce(or_, SCORER_SETTINGS.values()), Field(discriminator="kind")]
