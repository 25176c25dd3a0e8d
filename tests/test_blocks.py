"""Rows that are read block by block."""

import numpy as np
import pytest

from plumbline import blocks
from plumbline.blocks import map_rows
from plumbline.metrics.cell import ProductRows


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 12)


TABLE = np.arange(40.0).reshape(10, 4)


def test_blocks_give_what_the_whole_table_gives(few_at_once):
    seen = []

    def doubled(block):
        seen.append(len(block))
        return 2 * block[:, :2]

    np.testing.assert_array_equal(map_rows(doubled, TABLE), 2 * TABLE[:, :2])
    assert seen == [3, 3, 3, 1]


@pytest.mark.parametrize("chosen", [[7, 0, 5], [9], [], range(9, -1, -1)])
def test_chosen_rows_come_in_their_order(few_at_once, chosen):
    rows = np.array(chosen, dtype=np.int64)
    np.testing.assert_array_equal(map_rows(lambda block: block.argmax(axis=1), TABLE, rows), np.full(len(rows), 3))
    np.testing.assert_array_equal(map_rows(lambda block: block, TABLE, rows), TABLE[rows])


def test_a_table_without_rows_has_what_the_function_gives_for_none():
    assert map_rows(lambda block: block.sum(axis=1), TABLE[:0]).shape == (0,)


@pytest.mark.parametrize("factor", [1.0, 100.0])
def test_cosines_are_divided_block_by_block(few_at_once, factor):
    table, columns = TABLE.astype(np.float32), np.array([3, 1])
    norms = np.arange(1, 11, dtype=np.float32), np.array([2, 4], dtype=np.float32)
    rows = ProductRows(table, columns, norms, factor)
    expected = np.float32(factor) * (table[:, columns] / norms[0][:, None] / norms[1])
    assert (rows.shape, len(rows), rows[:].dtype) == ((10, 2), 10, np.float32)
    for part in (slice(None), slice(2, 9), slice(4, 4)):
        np.testing.assert_array_equal(rows[part], expected[part])
    np.testing.assert_array_equal(ProductRows(table, columns)[:], table[:, columns])
