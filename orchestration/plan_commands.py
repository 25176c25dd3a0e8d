"""The command that says what an audit would still do: images, answers, time, disk and cost."""

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from orchestration.terminal import ConfigOption, console, say, workspace_of
from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.catalog.studies import DatasetSize
from plumbline.config.entries import Limit
from plumbline.encoders.plan import EncoderPlan, PlannedCell, Rates
from plumbline.errors import PlumblineError
from plumbline.generators.plan import Plan
from resources.workspace import Workspace

# Nobody's measurement: what one GPU of a data centre does not fall short of with ViT-L/14 and decoding by a few cores
# (clip-retrieval publishes 312 images/s for one A100), and round numbers for pairs and tokens.
_IMAGES, _PAIRS, _TOKENS = 200.0, 1_000.0, 1_000.0


def plan_command(
    config: ConfigOption = None,
    images_per_second: Annotated[
        float | None,
        typer.Option(min=0.001, help=f"Images embedded per second on your device; {_IMAGES:,.0f} is assumed."),
    ] = None,
    pairs_per_second: Annotated[
        float | None, typer.Option(min=0.001, help=f"BridgeTower pairs per second; {_PAIRS:,.0f} is assumed.")
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001, help=f"New tokens per second of a model that has not run yet; {_TOKENS:,.0f} is assumed."
        ),
    ] = None,
) -> None:
    """Show the work left in the audit: images and prompts, answers and tokens, time, disk and cost.

    Nothing is started: no model is loaded, no endpoint is asked. Data and weights need not be there: a
    dataset of the studies that is not on this disk counts with its published size. What is there already is not done
    again. Exits with 2 where `generation.limit` of the audit file is exceeded.
    """
    from assets.plans import absent_datasets, plan_encoders
    from resources.lvlms import require_readable

    workspace = workspace_of(config)
    require_readable(workspace)
    absent = absent_datasets(workspace)
    for dataset, size in absent.items():
        say(f"{dataset}: not on this disk; {size.images:,} images as published ({size.source})")
    _read(workspace, without=absent)
    encoders = plan_encoders(workspace, absent)
    # A dataset is labelled too where only generative models are asked about it.
    if encoders.cells or workspace.audit.tells_of_encoders:
        _print_encoders(
            encoders,
            Rates(images_per_second or _IMAGES, pairs_per_second or _PAIRS),
            images_per_second,
            pairs_per_second,
        )
    if workspace.audit.designs:
        _print_generation(workspace, absent, tokens_per_second)


def _print_encoders(
    encoders: EncoderPlan, rates: Rates, images_per_second: float | None, pairs_per_second: float | None
) -> None:
    console.print(_cells(encoders, rates))
    given = _origin("--images-per-second", images_per_second)
    pairs = f" and {rates.pairs_per_second:,.0f} pairs/s {_origin('--pairs-per-second', pairs_per_second)}"
    say(
        f"{encoders.images_to_embed:,} images to embed"
        + (f", {encoders.pairs_to_score:,} pairs to score" if encoders.pairs_to_score else "")
        + f": {_duration(encoders.seconds(rates))} on one device at {rates.images_per_second:,.0f} images/s {given}"
        + (pairs if encoders.pairs_to_score else "")
        + f"; {'' if encoders.widths_are_known else 'at least '}{_size(encoders.least_bytes)}"
        + " of disk for embeddings, logits and records"
    )


def _print_generation(workspace: Workspace, absent: dict[str, DatasetSize], tokens_per_second: float | None) -> None:
    from assets.plans import plan_generation

    plan, rate = plan_generation(workspace, absent=absent), tokens_per_second or _TOKENS
    console.print(_slices(plan, rate))
    say(plan.summary)
    if plan.to_do:
        scores = len(workspace.audit.scorers) * len(SCORED_ATTRIBUTES)
        unmeasured = (
            f", where a model has not run (~) at {rate:,.0f} new tokens/s "
            f"{_origin('--tokens-per-second', tokens_per_second)}"
            if plan.hours is None
            else ""
        )
        say(
            f"{_duration(plan.seconds(rate))} one model after the other{unmeasured}; "
            f"{_size(plan.bytes(scores=scores))} of disk for answers and scores"
        )
    _say_of_limit(plan, workspace.audit.generation.limit)
    plan.require(workspace.audit.generation.limit)


def _say_of_limit(plan: Plan, limit: Limit) -> None:
    if above := plan.above(limit):
        say(f"Above generation.limit, so that `plumbline audit` refuses it: {'; '.join(above)}")
    elif limit.hours is not None and plan.hours is None:
        say("Within generation.limit, but for the hours: these are known after a first run.")
    elif any(most is not None for _, most in limit):
        say("Within generation.limit of the audit file.")


def _read(workspace: Workspace, *, without: dict[str, DatasetSize]) -> None:
    """Read the datasets that models are asked about, where that has not been done: a plan counts who is pictured."""
    from assets.plans import recorded

    datasets = [dataset for dataset in workspace.audit.asked_datasets if dataset not in without]
    unread = [dataset for dataset in datasets if recorded(workspace, dataset) is None]
    if not unread:
        return
    from orchestration.instance import audit_lock, opened, register_partitions

    with opened(workspace) as instance, audit_lock(workspace):
        from orchestration.definitions import defs
        from orchestration.job_run import run_job

        register_partitions(instance, workspace)
        for dataset in unread:
            with console.status(f"{escape(dataset)}: reading"):
                run = run_job(defs, instance, "read_dataset", dataset)
            # A check that fails refuses the audit; what is pictured is known all the same.
            if recorded(workspace, dataset) is None:
                raise PlumblineError(f"the dataset `{dataset}` could not be read", found=run.failure)


def _cells(plan: EncoderPlan, rates: Rates) -> Table:
    table = Table(title="To embed", title_justify="left", box=SIMPLE_HEAD)
    for name in ("dataset | encoder", "images", "prompts", "image × prompt", "to embed", "pairs", "disk", "time"):
        table.add_column(name, justify="left" if "|" in name else "right")
    for cell in plan.cells:
        table.add_row(*_row(cell, rates))
    return table


def _row(cell: PlannedCell, rates: Rates) -> tuple[str, ...]:
    return (
        escape(f"{cell.dataset} | {cell.encoder}"),
        f"{cell.images:,}",
        f"{cell.distinct_prompts:,}" if cell.prompts else "gender labels",
        f"{cell.images * cell.distinct_prompts:,}" if cell.prompts else "",
        f"{cell.images_to_embed:,}",
        f"{cell.pairs_to_score:,}" if cell.pairs_to_score else "",
        "?" if cell.bytes is None else _size(cell.bytes),
        "" if cell.is_there else _duration(cell.seconds(rates)),
    )


def _slices(plan: Plan, tokens_per_second: float) -> Table:
    table = Table(title="To generate", title_justify="left", box=SIMPLE_HEAD)
    for name in ("model | slice", "answers", "are there", "tokens read", "written", "time", "cost"):
        table.add_column(name, justify="left" if "|" in name else "right")
    for one in plan.slices:
        numbers = (one.rows, one.finished, one.prompt_tokens, one.new_tokens)
        assumed = one.seconds is None
        seconds = one.new_tokens / tokens_per_second if one.seconds is None else one.seconds
        cost = "?" if one.cost is None else f"{one.cost:,.2f}"
        name = f"{one.model} | {one.slice}"
        time = ("~" if assumed else "") + _duration(seconds) if one.to_do else ""
        table.add_row(escape(name), *(f"{n:,}" for n in numbers), time, cost)
    return table


def _origin(option: str, given: float | None) -> str:
    return f"(assumed; {option})" if given is None else "(given)"


def _duration(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"


def _size(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
