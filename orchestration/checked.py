"""What `plumbline check` prints: each dataset and model as an audit will find it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from assets.own_code import own_code_mistakes
from assets.plans import absent_datasets, plan_encoders, plan_generation, planned_power
from orchestration.planned import print_detectable
from orchestration.terminal import console, safe, say
from plumbline.datasets.grouping import rows_without_group
from plumbline.datasets.preview import Preview, preview
from plumbline.errors import PlumblineError
from plumbline.report.vocabulary import attribute_title, group_title
from resources.workspace import Workspace

_EXAMPLES, _MOST_GROUPS = 3, 8


def print_checks(workspace: Workspace, *, rate: float) -> int:
    """Print what an audit will find, and return how many things are bound to make it fail."""
    absent = absent_datasets(workspace)
    previews: dict[str, Preview] = {}
    failing = 0
    for mistake in own_code_mistakes(workspace):
        say(mistake, style="red")
        failing += 1
    for dataset in workspace.audit.used_datasets:
        if dataset in absent:
            say(f"{dataset}: not on this disk ({workspace.dataset_entry(dataset).root})", style="yellow")
            failing += 1
            continue
        try:
            previews[dataset] = _previewed(workspace, dataset)
        except PlumblineError as error:
            say(f"{dataset}: {error}", style="red")
            failing += 1
            continue
        _print_dataset(dataset, previews[dataset])
        failing += len(previews[dataset].failing)
    failing += _print_models(workspace, [*previews])
    groups = {dataset: one.groups for dataset, one in previews.items()}
    print_detectable(planned_power(workspace, groups, rate=rate), rate)
    verdict = "Nothing stands against this audit." if not failing else f"{failing} reason(s) why this audit would fail."
    say(verdict, style="red" if failing else "green")
    return failing


def _previewed(workspace: Workspace, dataset: str) -> Preview:
    entry = workspace.dataset_entry(dataset)
    limit = workspace.audit.thresholds.quarantine_rate if entry.quarantine_rate is None else entry.quarantine_rate
    with console.status(f"{safe(dataset)}: reading"):
        return preview(
            entry.open_reader(),
            workspace.dataset_root(dataset),
            dataset=dataset,
            balance=entry.balance,
            most_refused=limit,
        )


def _print_dataset(dataset: str, seen: Preview) -> None:
    looked = f", {seen.looked_at:,} looked at" if seen.looked_at else ""
    say(f"{dataset}: {seen.listed:,} images listed{looked}", style="bold")
    for (code,), rows in seen.refused.group_by("code", maintain_order=True):
        examples = "; ".join(map(_refused, rows.head(_EXAMPLES).to_dicts()))
        say(f"  refused, {code}: {rows.height:,}, such as {examples}")
    for groups in seen.groups:
        counted = Counter(groups.names[code] for code in groups.codes.tolist() if code >= 0)
        largest = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
        named = [f"{group_title(name)} {size:,}" for name, size in largest[:_MOST_GROUPS]]
        more = f" and {len(largest) - _MOST_GROUPS} more" if len(largest) > _MOST_GROUPS else ""
        say(f"  {attribute_title(groups.attribute)}: {', '.join(named)}{more}")
    for row in rows_without_group(seen.ungrouped).iter_rows(named=True):
        say(f"  {row['rows']:,} images are in no group of {attribute_title(row['attribute'])}: {row['why']}")
    if not seen.groups:
        say("  no attribute has groups: only totals can be audited", style="yellow")
    for reason in seen.failing:
        say(f"  would refuse the audit: {reason}", style="red")


def _refused(row: dict[str, Any]) -> str:
    line = "" if row["line"] is None else f" (line {row['line']})"
    what = "" if row["found"] is None else f", found {row['found']}"
    return f"{row['path']}{line}: {row['message']}{what}"


def _print_models(workspace: Workspace, datasets: list[str]) -> int:
    sizes = absent_datasets(workspace)
    wrong = dict(plan_encoders(workspace, sizes).unreadable)
    if workspace.audit.asked_models:
        wrong |= plan_generation(workspace, absent=sizes).unreadable
    table = Table(title="Models", title_justify="left", box=SIMPLE_HEAD)
    for name in ("model", "what is wrong"):
        table.add_column(name)
    for model in dict.fromkeys((*(encoder for _, encoder in workspace.audit.cells), *workspace.audit.asked_models)):
        table.add_row(safe(model), safe(wrong.get(model, "–")))
    console.print(table)
    return len(wrong)
