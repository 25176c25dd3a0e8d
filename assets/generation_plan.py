"""The plan of a generative audit, from its audit file, its records and what has been generated already."""

from collections.abc import Sequence
from math import ceil

import polars as pl

from assets.slices import asked_slices
from plumbline.lvlm.design import asked_rows
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.lvlm.generation import GenerationStore
from plumbline.lvlm.plan import Plan, PlannedSlice
from plumbline.tables.generation_prompts import typical_tokens
from resources.lvlms import backend_identity
from resources.places import Places

_CHARACTERS_OF_A_TOKEN = 4


def plan_generation(places: Places, models: Sequence[str] | None = None) -> Plan:
    """Plan what the audit file asks of its generative models; no model is loaded.

    Parameters
    ----------
    models : sequence of str, optional
        Only these; all by default.

    Raises
    ------
    StorageError
        If the records of a dataset have not been made.
    """
    wanted = models or list(dict.fromkeys(model for model, _ in places.audit.designs))
    return Plan([one for model in wanted for one in _planned(places, model)])


def require_within_limit(places: Places, model: str, slice_id: str) -> None:
    """Refuse a slice that is alone above the audit file's limit, however it is asked for.

    Raises
    ------
    ConfigError
        As `Plan.require`.
    """
    limit = places.audit.generation.limit
    if any(most is not None for _, most in limit):
        Plan(_planned(places, model, only=slice_id)).require(limit)


def _planned(places: Places, model: str, *, only: str | None = None) -> list[PlannedSlice]:
    decoding, store = places.audit.generation.decoding.decoding, GenerationStore(places.answers)
    identity, rate = backend_identity(places, model), _tokens_per_second(places, model)
    endpoint, planned = places.lvlm_entry(model).endpoint, []
    for name, sliced in asked_slices(places, model).items():
        if only not in (None, name):
            continue
        asked = asked_rows(
            sliced.rows,
            sliced.entries,
            identity=identity,
            decoding=decoding,
            root=places.dataset_root(sliced.dataset),
            sees=model not in places.audit.twins,
        )
        keys = pl.DataFrame({"row_key": [one.key for one in asked]}, schema={"row_key": pl.String})
        lacking = set(store.kept(identity, name).lacking(keys)["row_key"])
        left = [one for one in asked if one.key in lacking]
        read = sum(ceil(len(one.question.text) / _CHARACTERS_OF_A_TOKEN) for one in left)
        said = sum(min(typical_tokens(one.question.prompt), decoding.max_new_tokens) for one in left)
        cost = 0.0 if endpoint is None else _cost(endpoint, read, said)
        planned.append(
            PlannedSlice(
                model=model,
                slice=name,
                rows=len(asked),
                finished=len(asked) - len(left),
                prompt_tokens=read,
                new_tokens=said,
                seconds=None if rate is None else said / rate,
                cost=cost,
            )
        )
    return planned


def _cost(endpoint: EndpointSettings, read: int, written: int) -> float | None:
    """Return what tokens cost at an endpoint; None where it has no prices."""
    if endpoint.price_input is None or endpoint.price_output is None:
        return None
    return (read * endpoint.price_input + written * endpoint.price_output) / 1e6


def _tokens_per_second(places: Places, model: str) -> float | None:
    """Return the mean rate of the newest runs of a model in which it generated; None where there is none."""
    made = [
        places.lake.committed("generations", partition=f"{model}|{s}") for s in asked_slices(places, model)
    ]
    rates = [rate for one in made if one is not None and (rate := one.details["tokens_per_second"])]
    return sum(rates) / len(rates) if rates else None
