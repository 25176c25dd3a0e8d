"""Parts of a table that are taken over: the same rows as computed ones, and only where nothing was changed."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from upath import UPath

from plumbline.metrics.family import MetricSettings
from plumbline.metrics.paired.mitigations import mitigation_effects
from plumbline.metrics.registry import FAMILIES
from plumbline.parts import Parts, keeping
from plumbline.reasons import reason
from plumbline.storage import Lake
from plumbline.storage.builds import forget_parts, read_parts, write_parts
from plumbline.storage.files import table_bytes

SUITES = ("crime", "communion", "agency", "trident", "perception", "templates", "markedness")
CHANGED = "communion"


@pytest.fixture(scope="module")
def cells(make_cell):
    """Return a cell, and the same one with other answers to one suite."""
    before = make_cell(n=120, seed=3, suites=SUITES)
    suite = before.logits[CHANGED]
    other = replace(suite, logits=suite.logits[::-1], cosine=suite.cosine[::-1])
    return before, replace(before, logits={**before.logits, CHANGED: other})


def stored(parts: Parts) -> Parts:
    return Parts(json.loads(json.dumps(parts.now)))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "sanity_metrics"])
def test_rows_taken_over_are_those_of_a_family_that_computes_all_of_them(name, cells, quick):
    before, after = cells
    compute = FAMILIES[name].compute
    with keeping(Parts()) as first:
        compute(before, settings=quick)
    with keeping(stored(first)) as second:
        incremental = compute(after, settings=quick)
    assert table_bytes(incremental) == table_bytes(compute(after, settings=quick))
    reads = "outcomes" in FAMILIES[name].needs
    taken = first.now.keys() & second.now.keys()
    assert (taken == first.now.keys()) != reads
    if reads:  # crime, agency: the harm rate, and each attribute
        assert 6 <= len(taken) < len(second.now)
    with keeping(stored(first)) as third:
        compute(before, settings=replace(quick, confidence=0.9))
    assert not first.now.keys() & third.now.keys()


def test_effects_of_a_mitigation_are_taken_over_by_comparison(cells, quick):
    before, after = cells
    rows = np.ones(before.records.height, dtype=bool)
    shown = {"condition": "a", "method": "saner", "rows": rows, "settings": quick}
    with keeping(Parts()) as first:
        mitigation_effects(before, before, **shown)
    with keeping(stored(first)) as second:
        incremental = mitigation_effects(before, after, **shown)
    assert table_bytes(incremental) == table_bytes(mitigation_effects(before, after, **shown))
    assert 0 < len(first.now.keys() & second.now.keys()) < len(second.now)


def test_keys_tell_values_apart_and_refuse_what_has_no_content(cells):
    one = np.arange(20_000)
    other = np.where(one == 7, 8, one)
    values = [
        1, 1.0, True, "1", b"1", None, (1, 2), [1, 2], {"a": 1}, {"b": 1}, one, other, one.astype(np.float64),
        one.reshape(2, -1), np.float32(1), pl.DataFrame({"a": [1]}), pl.DataFrame({"b": [1]}), MetricSettings(),
        MetricSettings(seed=9), stored, cells[0].name,
    ]  # fmt: skip
    assert len({Parts().key(value) for value in values}) == len(values)
    assert Parts().key(one) == Parts().key(one.copy())
    with pytest.raises(TypeError, match="no content"):
        Parts().key(object())


def test_kept_parts_are_read_where_code_and_bytes_are_the_same(tmp_path):
    lake, parts = Lake(UPath(tmp_path)), Parts()
    negative = np.copysign(np.float64("nan"), -1)  # as 0 / 0 gives it
    rows = [{"value": negative, "n": np.int64(3), "reason": (reason("empty_group"),)}, {"value": 0.1, "n": 2}]
    parts.keep("of this", rows)
    write_parts(lake, "outcome_metrics", "a|b", parts.now, code="x")
    assert read_parts(lake, "outcome_metrics", "a|b", code="y") == {}
    (first, second) = Parts(read_parts(lake, "outcome_metrics", "a|b", code="x")).find("of this")
    assert (
        first["n"] == 3
        and np.float64(first["value"]).tobytes() == negative.tobytes()
        and first["reason"] == (reason("empty_group"),)
    )
    assert second == rows[1]
    forget_parts(lake, "trident_metrics", "a|b")  # there are none
    [file] = tmp_path.rglob("parts.json")
    file.write_bytes(file.read_bytes().replace(b"0.1", b"0.2"))
    assert read_parts(lake, "outcome_metrics", "a|b", code="x") == {}
    forget_parts(lake, "outcome_metrics", "a|b")
    assert not file.exists()
