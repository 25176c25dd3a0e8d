"""Published differences, computed anew from the table that they are differences of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from plumbline.errors import StorageError
from plumbline.tables.checkpoints import study_checkpoint
from plumbline.tables.printed_table import LABELS, PrintedCell, Recomputed
from plumbline.tables.schema import Row


def recompute(
    rows: Sequence[Row],
    cells: Sequence[PrintedCell],
    rule: Recomputed,
    *,
    source: Sequence[Row],
    where: str,
) -> list[Row]:
    """Replace printed differences by those of the source table: first minus second checkpoint of the pair.

    Parameters
    ----------
    rows : sequence of dict
        Rows of the printed differences; their last two labels name the pair in `rule.pairs`.
    cells : sequence of PrintedCell
        The same cells, as printed.
    rule : Recomputed
        Pairs of checkpoints, and which columns of the source a column is the mean of.
    source : sequence of dict
        Rows of the source table, printed in Plumbline's own unit.
    where : str
        Paper and table, for the message.

    Returns
    -------
    list of dict
        The rows with `value`, `model`, `checkpoint`, `reference_checkpoint`, `rounding` and `status` `recomputed`;
        `printed` is still what the paper prints. Both terms are rounded, so `rounding` is that of both together, also
        of a mean of differences.

    Raises
    ------
    StorageError
        If a pair or a column is not in the rule, or the source lacks one of the cells.
    """
    known = {(row["checkpoint"], row["dataset"], row["column"]): row for row in source}
    return [
        row | _difference(cell, row["dataset"], rule, known, where=f"{where}, {cell.row}, {cell.column}")
        for row, cell in zip(rows, cells)
    ]


def _difference(
    cell: PrintedCell,
    dataset: object,
    rule: Recomputed,
    known: Mapping[tuple[object, object, object], Row],
    *,
    where: str,
) -> Row:
    pair = LABELS.join(list(cell.labels.values())[-2:])
    if pair not in rule.pairs or cell.column not in rule.columns:
        raise StorageError(
            "a difference is not explained", where=where, found=pair, expected=", ".join(rule.pairs)
        )
    first, second = rule.pairs[pair]
    columns = rule.columns[cell.column]
    terms = [(first, column) for column in columns] + [(second, column) for column in columns]
    lacking = [f"{column} of {name}" for name, column in terms if (name, dataset, column) not in known]
    if lacking:
        raise StorageError(
            "a difference is of cells that its source lacks", where=where, found=", ".join(lacking)
        )
    ends = [known[name, dataset, column] for name, column in terms]
    signs = [1] * len(columns) + [-1] * len(columns)
    value = sum((sign * Decimal(str(end["printed"])) for sign, end in zip(signs, ends)), Decimal(0))
    rounding = sum((Decimal(str(end["rounding"])) for end in ends), Decimal(0))
    return {
        "model": f"{study_checkpoint(first).title} - {study_checkpoint(second).title}",
        "checkpoint": first,
        "reference_checkpoint": second,
        "value": float(value / len(columns)),
        "rounding": float(rounding / len(columns)),
        "status": "recomputed",
    }
