"""What `plumbline plan` shows: what an audit would still embed and ask, how long, and what it costs."""

from dataclasses import dataclass
from itertools import chain

from rich.box import SIMPLE_HEAD
from rich.table import Table

from assets.asked_cells import left_out
from assets.model_addresses import model_addresses
from assets.plans import absent_datasets, plan_encoders, plan_generation, recorded, recorded_groups
from assets.up_to_date import Present
from plumbline.catalog.schema import SCORED_ATTRIBUTES
from plumbline.catalog.studies import DatasetSize
from plumbline.commands.checks import print_detectable
from plumbline.commands.terminal import console, safe, say
from plumbline.config.entries import Limit
from plumbline.config.own import require_own_code
from plumbline.config.reproduction import reproduction, run_of
from plumbline.encoders.plan import EncoderPlan, PlannedCell, Rates
from plumbline.errors import PlumblineError
from plumbline.generators.plan import Plan
from plumbline.metrics.disparities import planned_power
from resources.lvlms import require_readable
from resources.workspace import Workspace


@dataclass(frozen=True)
class Rate:
    """How much a second: as an option says, else as is assumed."""

    option: str
    given: float | None
    assumed: float

    @property
    def value(self) -> float:
        """Return what is reckoned with."""
        return self.given or self.assumed

    @property
    def origin(self) -> str:
        """Say where it is from."""
        return f"(assumed; {self.option})" if self.given is None else "(given)"


def print_plan(workspace: Workspace, *, images: Rate, pairs: Rate, tokens: Rate, rate: float) -> None:
    """Print the work left; datasets that models are asked about are read first, and those that changed since they were.

    Raises
    ------
    ConfigError
        If `generation.limit` of the audit file is exceeded.
    """
    require_own_code(workspace.audit, workspace.dataset_root)
    require_readable(workspace)
    absent = absent_datasets(workspace)
    for dataset, size in absent.items():
        say(f"{dataset}: not on this disk; {size.images:,} images as published ({size.source})")
    _read(workspace, without=absent)
    encoders = plan_encoders(workspace, absent)
    # A dataset is labelled too where only generative models are asked about it.
    if encoders.cells or workspace.audit.tells_of_encoders:
        _print_encoders(encoders, images, pairs)
        for encoder, reason in encoders.unreadable.items():
            say(f"{encoder} is left aside: {reason}")
        print_detectable(
            planned_power(
                workspace.audit.cells,
                recorded_groups(workspace),
                rate=rate,
                permutations=workspace.audit.statistics.permutations,
                suite=workspace.suite,
            ),
            rate,
        )
        for each in chain.from_iterable(left_out(workspace)):
            say(f"{each.dataset} | {each.model}: {each.reason}")
    if workspace.audit.designs:
        _print_generation(workspace, absent, tokens)
    _print_reproduction(workspace)


def _print_reproduction(workspace: Workspace) -> None:
    """Print of every table of the papers of these checkpoints how far this audit file reproduces it."""
    audit = workspace.audit
    tables = reproduction(run_of(audit, model_addresses(audit)))
    if tables.is_empty():
        return
    for (paper,), of_paper in tables.group_by("paper", maintain_order=True):
        shown = Table(title=safe(f"Printed tables of {paper}"), title_justify="left", box=SIMPLE_HEAD)
        for name in ("table", "what it is", "numbers", "repro-\nduced", "other\nprotocol", "cannot\nbe", "why"):
            words = name in {"table", "what it is", "why"}
            shown.add_column(name, justify="left" if words else "right", max_width=24 if name == "what it is" else None)
        for row in of_paper.iter_rows(named=True):
            numbers = (f"{row[name]:,}" for name in ("cells", "reproduced", "other_protocol", "cannot"))
            shown.add_row(safe(row["table"]), safe(row["title"]), *numbers, safe(row["why"] or ""))
        console.print(shown)


def _print_encoders(encoders: EncoderPlan, images: Rate, pairs: Rate) -> None:
    rates = Rates(images.value, pairs.value)
    console.print(_cells(encoders, rates))
    at_pairs = f" and {rates.pairs_per_second:,.0f} pairs/s {pairs.origin}"
    say(
        f"{encoders.images_to_embed:,} images to embed"
        + (f", {encoders.pairs_to_score:,} pairs to score" if encoders.pairs_to_score else "")
        + f": {_duration(encoders.seconds(rates))} on one device at {rates.images_per_second:,.0f} images/s "
        + images.origin
        + (at_pairs if encoders.pairs_to_score else "")
        + f"; {'' if encoders.widths_are_known else 'at least '}{_size(encoders.least_bytes)}"
        + " of disk for embeddings, logits and records"
    )


def _print_generation(workspace: Workspace, absent: dict[str, DatasetSize], tokens: Rate) -> None:
    plan, rate = plan_generation(workspace, absent=absent), tokens.value
    console.print(_slices(plan, rate))
    for model, reading in plan.reading.items():
        say(f"{model} reads {reading}")
    for model, reason in plan.unreadable.items():
        say(f"{model} is left aside: {reason}")
    say(plan.summary)
    if plan.to_do:
        scores = len(workspace.audit.scorers) * len(SCORED_ATTRIBUTES)
        unmeasured = (
            f", where a model has not run (~) at {rate:,.0f} new tokens/s {tokens.origin}" if plan.hours is None else ""
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
    """Read the datasets that models are asked about, and anew those that changed: a plan counts who is pictured."""
    asked = [dataset for dataset in workspace.audit.asked_datasets if dataset not in without]
    unread = [dataset for dataset in asked if recorded(workspace, dataset) is None]
    unread += [dataset for dataset in workspace.audit.used_datasets if _has_changed(workspace, dataset)]
    if not unread:
        return
    from orchestration.instance import audit_lock, opened, register_partitions

    with audit_lock(workspace), opened(workspace) as instance:
        from orchestration.definitions import defs
        from orchestration.job_run import run_job

        register_partitions(instance, workspace)
        for dataset in unread:
            with console.status(f"{safe(dataset)}: reading"):
                run = run_job(defs, instance, "read_dataset", dataset)
            # A check that fails refuses the audit; what is pictured is known all the same.
            if recorded(workspace, dataset) is None or _has_changed(workspace, dataset):
                raise PlumblineError(f"the dataset `{dataset}` could not be read", found=run.failure)


def _has_changed(workspace: Workspace, dataset: str) -> bool:
    """Return whether a dataset that was read, and is there, is another than it was then."""
    if recorded(workspace, dataset) is None or not workspace.dataset_root(dataset).is_dir():
        return False
    return bool(Present(workspace).changes("records", dataset))


def _cells(plan: EncoderPlan, rates: Rates) -> Table:
    table = Table(title="To embed", title_justify="left", box=SIMPLE_HEAD)
    for name in ("dataset | encoder", "images", "prompts", "image × prompt", "to embed", "pairs", "disk", "time"):
        table.add_column(name, justify="left" if "|" in name else "right")
    for cell in plan.cells:
        table.add_row(*_row(cell, rates))
    return table


def _row(cell: PlannedCell, rates: Rates) -> tuple[str, ...]:
    return (
        safe(f"{cell.dataset} | {cell.encoder}"),
        f"{cell.images:,}",
        f"{cell.distinct_prompts:,}" if cell.prompts else cell.purpose,
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
        table.add_row(safe(name), *(f"{n:,}" for n in numbers), time, cost)
    return table


def _duration(seconds: float) -> str:
    if seconds < 7200:
        return f"{seconds / 60:,.1f} min"
    return f"{seconds / 3600:,.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:,.1f} days"


def _size(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
