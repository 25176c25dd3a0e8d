"""What an audit of the planted world should find: the planted rates as rows, beside which estimates can be laid."""

from __future__ import annotations

from itertools import product

import polars as pl

from plumbline.tables.suites import GENDERS, load_suite
from plumbline.world.sources import EVENT_SUITES, event_latents, planted_rate


def planted_rates(source: str) -> pl.DataFrame:
    """Return the true rate of every planted event for every group of the planted FairFace folder.

    Parameters
    ----------
    source : str
        A data source of the planted world.

    Returns
    -------
    DataFrame
        `suite, event, attribute, group, planted`: attributes race, gender and gender_race (`Black_man`).
    """
    races = load_suite("trident", classes="fairface").class_labels
    rows = []
    for event in event_latents():
        rates = {(r, g): planted_rate(source, event, r, g) for r, g in product(races, GENDERS)}
        groups = {
            "race": {r: planted_rate(source, event, r) for r in races},
            "gender": {g: sum(rates[r, g] for r in races) / len(races) for g in GENDERS},
            "gender_race": {f"{r}_{g}": rate for (r, g), rate in rates.items()},
        }
        rows += [
            {
                "suite": EVENT_SUITES[event],
                "event": event,
                "attribute": attribute,
                "group": group,
                "planted": rate,
            }
            for attribute, by_group in groups.items()
            for group, rate in by_group.items()
        ]
    return pl.DataFrame(rows)
