"""What mitigations change, as tables: verdicts at a glance, all numbers, and one line a model."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from plumbline.metrics.transfer_schema import IMPROVED, NO_EVIDENCE, UNDEFINED, WORSENED
from plumbline.mitigation.methods import method_title
from plumbline.report.figures.canvas import label
from plumbline.report.listings import Listing
from plumbline.report.numbers import bare_p, count
from plumbline.report.recommendation import recommended
from plumbline.report.rows import Row
from plumbline.report.transfer import BLOCKS, COSTS, JUDGED, Tried, block_of, place
from plumbline.report.transfer_words import both_values, change, change_interval, row_title

SIGNS = {IMPROVED: "✓ improved", WORSENED: "✗ worsened", NO_EVIDENCE: "no evidence", UNDEFINED: "undefined"}
"""Verdict -> how a table writes it: the sign tells it without colour."""


def verdict_matrix(candidates: Sequence[Tried]) -> Listing:
    """Return verdicts by what was judged (rows) and mitigation (columns); `–` where it was not judged."""
    titles = {block.name: block.title for block in BLOCKS}
    found = {(one.condition, block_of(r), row_title(r)): r for one in candidates for r in one.rows}
    keys = {(block_of(r), row_title(r)): place(r) for one in candidates for r in one.rows}
    order = sorted(keys, key=keys.__getitem__)
    shown = [
        (
            # A block is named once, at its first row.
            titles.get(str(block), str(block)) if i == 0 or order[i - 1][0] != block else "",
            title,
            *(_verdict(found.get((one.condition, block, title))) for one in candidates),
        )
        for i, (block, title) in enumerate(order)
    ]
    heads = ("", "", *(label(one.condition, longest=40) for one in candidates))
    return Listing(heads, shown)


def _verdict(row: Row | None) -> str:
    return SIGNS.get(row["verdict"], str(row["verdict"])) if row else "–"


def transfer_listing(rows: pl.DataFrame) -> Listing:
    """List every comparison of a checkpoint and dataset, with further readings of the axes, by mitigation."""
    shown = [
        (
            row["condition"],
            method_title(row["method"]),
            row_title(row),
            f"{row['metric']} · {row['definition']}".replace("_", " "),
            both_values(row),
            change(row),
            change_interval(row),
            bare_p(row["q"]),
            count(row["n"]) if row["n"] is not None else "–",
            SIGNS.get(row["verdict"], str(row["verdict"])),
            row["reason"] or "",
        )
        for row in sorted(rows.to_dicts(), key=lambda r: (r["condition"], block_of(r) is None, place(r)))
    ]
    heads = (
        "Mitigation",
        "Method",
        "What",
        "Metric",
        "Before → after",
        "Change",
        "Interval of the change",
        "q",
        "n",
    )
    return Listing((*heads, "Verdict", "Note"), shown, frozenset({4, 5, 6, 7, 8}))


def overview_listing(by_model: Sequence[Sequence[Tried]], conditions: Sequence[str]) -> Listing:
    """List for each model which mitigation to use, and how many axes and harm rates each changes."""
    rows = []
    for candidates in by_model:
        chosen, found = recommended(candidates), {one.condition: one for one in candidates}
        cells = [_counted(found[name]) if name in found else "–" for name in conditions]
        rows.append((candidates[0].model, chosen.condition if chosen else "none", *cells))
    heads = ("Model", "To use", *(label(name, longest=40) for name in conditions))
    note = "Counted are axes and harm rates; “costs” where accuracy or retrieval clearly falls."
    return Listing(heads, rows, note=note)


def _counted(one: Tried) -> str:
    judged = one.of(*JUDGED)
    if not judged:
        return "not judged"
    better, worse = len(one.of(*JUDGED, verdict=IMPROVED)), len(one.worsened)
    costs = ", costs" if one.of(*COSTS, verdict=WORSENED) else ""
    return f"{better} better, {worse} worse of {len(judged)}{costs}"
