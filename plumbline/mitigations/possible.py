"""Which mitigations can be tried on an encoder and a dataset: asked before anything is embedded."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from plumbline.catalog.suites import Suite, shows_mitigation
from plumbline.encoders.families import Family, require
from plumbline.errors import ConfigError
from plumbline.mitigations.logit_adjustment.adjustment import LogitAdjustmentSettings
from plumbline.mitigations.logit_adjustment.cells import SUITES, may_adjust, why_not_adjustable
from plumbline.mitigations.settings import METHODS, MitigationSettings
from plumbline.mitigations.text_mitigations import TrainedMitigationSettings
from plumbline.mitigations.training_rows import is_training_row


def is_judged(suites: Sequence[Suite]) -> bool:
    """Return whether one of some suites shows what a mitigation changes."""
    return any(shows_mitigation(suite.id, suite.family) for suite in suites)


def require_possible(
    name: str,
    settings: MitigationSettings,
    suites: Sequence[Suite],
    *,
    family: Family,
    labels: Collection[str],
    where: str,
) -> None:
    """Refuse a mitigation that the audit file names where it cannot be tried or judged, whatever the images are.

    Parameters
    ----------
    name : str
        Its id in the audit file.
    suites : sequence of Suite
        That the encoder is asked of the dataset.
    labels : collection of str
        Attributes that the dataset has.
    where : str
        Dataset and encoder, for messages.

    Raises
    ------
    ConfigError
        If the encoder's family lacks what it needs, or no suite would show what it changes, or is one to fit it on.
    """
    require(family, METHODS[settings.method].needs, f"the mitigation `{name}`")
    if not is_judged(suites):
        raise ConfigError(
            f"nothing would show what the mitigation `{name}` changes",
            where=where,
            found="no outcome suite and no Trident suite",
            expected="a suite such as crime, communion, agency or trident for the same dataset and encoder",
        )
    if isinstance(settings, LogitAdjustmentSettings) and not any(
        may_adjust(suite, settings, labels=labels) for suite in suites
    ):
        raise ConfigError(
            f"the mitigation `{name}` has nothing to be fitted on",
            where=where,
            found=f"suites {', '.join(suite.id for suite in suites)}; labels {', '.join(sorted(labels)) or 'none'}",
            expected="labels of race and gender, and crime or an own suite with candidates of the category "
            f"`demographic`; or {SUITES[settings.candidates]}",
            hint="leave it out for this dataset, or ask such a suite",
        )


def why_not_fitted(settings: MitigationSettings, suites: Sequence[Suite], records: pl.DataFrame) -> str:
    """Return why the labels of a dataset allow no fit of a mitigation; empty where they may.

    Parameters
    ----------
    records : DataFrame
        Of the images of the dataset.
    """
    if isinstance(settings, LogitAdjustmentSettings):
        if any(suite.id in SUITES.values() for suite in suites):
            return ""
        outcomes = [suite for suite in suites if suite.family == "outcomes"]
        reasons = {suite.id: why_not_adjustable(suite, records) for suite in outcomes}
        return "" if "" in reasons.values() else "; ".join(f"{suite}: {why}" for suite, why in reasons.items())
    if isinstance(settings, TrainedMitigationSettings) and not settings.datasets and settings.from_ is None:
        train = is_training_row(records)
        if not train.any():
            return "no row is of a training split: map a column to `split`, whose value is `train`, or name `fit_on`"
        if train.all():
            return "every image is a training image: none is left to judge it on"
    return ""
