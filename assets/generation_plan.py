"""The plan of a generative audit, from its audit file, its records and what has been generated already."""

from collections.abc import Mapping, Sequence
from math import ceil

import polars as pl

from assets.asked_cells import declaration_of
from assets.slices import AskedSlice, asked_slices
from plumbline.catalog.prompts import typical_tokens
from plumbline.catalog.studies import DatasetSize
from plumbline.checkpoints.addresses import TRANSFORMERS_CONFIG
from plumbline.generators.design import asked_rows
from plumbline.generators.generation import GenerationStore
from plumbline.generators.plan import CHARACTERS_OF_A_TOKEN, Plan, PlannedSlice, cost_of, published_slices
from resources.lvlms import backend_identity
from resources.workspace import Workspace


def plan_generation(
    workspace: Workspace,
    models: Sequence[str] | None = None,
    *,
    absent: Mapping[str, DatasetSize] | None = None,
) -> Plan:
    """Plan what the audit file asks of its generative models; no model is loaded.

    Parameters
    ----------
    models : sequence of str, optional
        Only these; all by default.
    absent : mapping of str to DatasetSize, optional
        Published sizes of the datasets that are not on this disk. With it, models need not be there either: nothing
        that they said can be.

    Raises
    ------
    StorageError
        If the records of another dataset have not been made.
    CheckpointError
        If a model is not on this disk, and `absent` is not given.
    """
    wanted = models or workspace.audit.asked_models
    if absent is None:
        return Plan([one for model in wanted for one in _planned(workspace, model)])
    return Plan([one for model in wanted for one in _planned_anywhere(workspace, model, absent)])


def _planned_anywhere(
    workspace: Workspace, model: str, absent: Mapping[str, DatasetSize]
) -> list[PlannedSlice]:
    found = _planned(workspace, model, absent=absent)
    for (name, dataset), entries in workspace.audit.designs.items():
        if name == model and dataset in absent:
            found += published_slices(
                model,
                dataset,
                entries,
                absent[dataset],
                most_new_tokens=workspace.audit.generation.decoding.max_new_tokens,
                sees=model not in workspace.audit.twins,
                has_occupations="occupation" in declaration_of(workspace, dataset).filled,
                endpoint=workspace.lvlm_entry(model).endpoint,
            )
    return found


def require_within_limit(workspace: Workspace, model: str, slice_id: str) -> None:
    """Refuse a slice that is alone above the audit file's limit, however it is asked for.

    Raises
    ------
    ConfigError
        As `Plan.require`.
    """
    limit = workspace.audit.generation.limit
    if any(most is not None for _, most in limit):
        Plan(_planned(workspace, model, only=slice_id)).require(limit)


def _planned(
    workspace: Workspace,
    model: str,
    *,
    only: str | None = None,
    absent: Mapping[str, DatasetSize] | None = None,
) -> list[PlannedSlice]:
    slices = asked_slices(workspace, model, without=absent or ())
    if not slices:
        return []
    decoding, store = workspace.audit.generation.decoding.decoding, GenerationStore(workspace.answers)
    identity, rate = (
        _identity(workspace, model, anywhere=absent is not None),
        _tokens_per_second(workspace, model, slices),
    )
    endpoint, planned = workspace.lvlm_entry(model).endpoint, []
    for name, sliced in slices.items():
        if only not in (None, name):
            continue
        asked = asked_rows(
            sliced.rows,
            sliced.entries,
            identity=identity,
            decoding=decoding,
            root=workspace.dataset_root(sliced.dataset),
            sees=model not in workspace.audit.twins,
        )
        keys = pl.DataFrame({"row_key": [one.key for one in asked]}, schema={"row_key": pl.String})
        lacking = set(store.kept(identity, name).lacking(keys)["row_key"])
        left = [one for one in asked if one.key in lacking]
        read = sum(ceil(len(one.question.text) / CHARACTERS_OF_A_TOKEN) for one in left)
        said = sum(min(typical_tokens(one.question.prompt), decoding.max_new_tokens) for one in left)
        planned.append(
            PlannedSlice(
                model=model,
                slice=name,
                rows=len(asked),
                finished=len(asked) - len(left),
                prompt_tokens=read,
                new_tokens=said,
                seconds=None if rate is None else said / rate,
                cost=cost_of(endpoint, read, said),
            )
        )
    return planned


def _identity(workspace: Workspace, model: str, *, anywhere: bool) -> str:
    """Return what a model's answers are kept under; of one that is not on this disk, a name that nothing is under."""
    address = workspace.lvlm_entry(model).address
    if (
        anywhere
        and address is not None
        and not (workspace.checkpoint_folder(address) / TRANSFORMERS_CONFIG).is_file()
    ):
        return address
    return backend_identity(workspace, model)


def _tokens_per_second(workspace: Workspace, model: str, slices: Mapping[str, AskedSlice]) -> float | None:
    """Return the mean rate of the newest runs of a model in which it generated; None where there is none."""
    made = [workspace.lake.committed("generations", partition=f"{model}|{name}") for name in slices]
    rates = [rate for one in made if one is not None and (rate := one.details["tokens_per_second"])]
    return sum(rates) / len(rates) if rates else None
