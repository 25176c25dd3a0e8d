"""The state of a row, the smallest value that an audit finds, and equivalence within a declared margin."""

import math

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError
from scipy import stats

from plumbline.catalog.schema import metric_frame
from plumbline.config.audit import Audit
from plumbline.metrics.evidence import (
    add_detectable_changes,
    add_equivalence,
    add_power,
    equivalence_metrics,
    state,
    states,
)
from plumbline.metrics.registry import metric_table
from plumbline.reasons import decode, reason
from plumbline.statistics.power import effect_size, value_at

NAN = math.nan
BASE = {"model": "clip", "dataset": "fairface", "condition": "before", "statistic": "estimate"}
DEFINITIONS = {"max_skew": "mean_over_pairs", "sc_weat_effect": "paper", "impact_ratio": "min_over_max"}


def row(metric, value, low, high, p=0.5, **columns):
    named = {"metric": metric, "definition": DEFINITIONS.get(metric, "any")}
    return BASE | named | {"value": value, "ci_low": low, "ci_high": high, "p": p} | columns


@pytest.mark.parametrize(
    ("p", "q", "equivalence", "expected"),
    [
        (0.001, 0.01, None, "evidence"),
        (0.001, 0.2, None, "no_evidence"),
        (0.001, 0.2, 0.01, "evidence_of_none"),
        (0.001, 0.01, 0.01, "evidence"),
        (0.3, None, 0.2, "no_evidence"),
        (0.01, None, None, "evidence"),
        (None, None, None, None),
        (NAN, None, None, None),
    ],
)
def test_the_states(p, q, equivalence, expected):
    one = {"p": p, "q": q, "equivalence_q": equivalence}
    assert state(one) == expected
    kinds = dict.fromkeys(one, pl.Float64)
    assert states(pl.DataFrame([one], schema=kinds, orient="row")).to_list() == [expected]


def test_an_effect_is_found_at_the_distance_that_its_error_gives():
    error = 0.4 / 1.959964
    # The paper's tests of words ask for one direction.
    for definition, level in (("two_sided", 0.05), ("studentised", 0.1)):
        one = row("sc_weat_effect", 0.1, -0.3, 0.5) | {"definition": definition}
        found = add_power(metric_frame([one]), confidence=0.95)["smallest_detectable"].item()
        assert found == pytest.approx(float(effect_size(level)) * error, rel=1e-5)


def test_more_tests_need_a_larger_difference_and_findings_beside_it_a_smaller_one():
    between = value_at(0.05 * 11 / 25, [0.2, 0.3, NAN, NAN])

    def found(others):
        rows = [row("max_skew", 0.1, 0, 0.4, event="crime", detectable_05=0.2, detectable_002=0.3)]
        rows += [row("max_skew", 0.1, 0, 0.4, event=str(i), p=p) for i, p in enumerate(others)]
        table = add_power(metric_frame(rows), confidence=0.95)
        return table.filter(pl.col("event") == "crime")["smallest_detectable"].item()

    assert found([]) == pytest.approx(0.2)
    assert found([0.9] * 24) == pytest.approx(0.3), "p = .05 / 25"
    assert found([0.9] * 24) > found([*[1e-6] * 10, *[0.9] * 14]) == pytest.approx(between)


def test_what_is_not_computed_is_null_and_what_is_never_found_nan():
    rows = [
        row("max_skew", 0.1, 0, 0.4, event="a"),
        row("max_skew", 0.1, 0, 0.4, event="b", detectable_05=NAN, detectable_002=NAN),
        row("max_skew", 0.1, 0, 0.4, event="c", p=None, detectable_05=0.1),
    ]
    table = add_power(metric_frame(rows), confidence=0.95)
    unknown, never, untested = table["smallest_detectable"]
    assert unknown is None and untested is None and math.isnan(never)
    codes = [[one.code for one in decode(cell)] for cell in table["reason_codes"]]
    assert codes == [["power_unknown"], ["nothing_detectable"], []]
    # At a p that allows what is told it is told; a stricter one, of which nothing is told, is unknown.
    rows = [row("max_skew", 0.1, 0, 0.4, detectable_05=0.3, detectable_002=None), *(
        row("max_skew", 0.1, 0, 0.4, p=0.9, event=str(i), detectable_05=0.3) for i in range(40)
    )]  # fmt: skip
    alone, among = (
        add_power(metric_frame(some), confidence=0.95)["smallest_detectable"][0] for some in (rows[:1], rows)
    )
    assert alone == pytest.approx(0.3) and among is None


def test_too_few_sets_find_nothing_however_small_the_error():
    few = reason("few_relabellings", least=0.12)
    one = row("skew_at_k", -0.3, -0.5, -0.15) | {"reason": (few,)}
    assert math.isnan(add_power(metric_frame([one]), confidence=0.95)["smallest_detectable"].item())


def test_a_level_that_p_cannot_reach_is_no_power_at_a_stricter_one():
    rows = [
        row("skew_at_k", -0.1, -0.3, 0.1, event="few", detectable_002=NAN, detectable_0001=NAN, detectable_00001=NAN)
    ]
    many = [row("skew_at_k", -0.1, -0.3, 0.1, event=str(i), p=0.9) for i in range(30)]
    alone, among = (add_power(metric_frame(each), confidence=0.95) for each in (rows, rows + many))
    assert alone["smallest_detectable"].item() == pytest.approx(0.4 / 2 / 1.96 * (1.96 + 0.8416), rel=1e-3)
    few, *others = among["smallest_detectable"]
    assert math.isnan(few) and all(other > alone["smallest_detectable"].item() for other in others)
    between = add_power(metric_frame(rows + many[:10]), confidence=0.95)["smallest_detectable"]
    assert math.isnan(between[0]), "p may not reach .05 / 11, since it cannot reach .002"


@pytest.mark.parametrize(
    ("one", "margin", "distance"),
    [
        (row("max_skew", 0.1, 0.0, 0.2), 0.3, math.log(1.3 / 1.1) / math.log(1.2 / 1.1)),
        (row("sc_weat_effect", -0.1, -0.2, 0.1), 0.25, (0.25 - 0.1) / 0.1),
        (row("sc_weat_effect", 0.1, -0.3, 0.2), 0.25, (0.1 + 0.25) / 0.4),
        (row("impact_ratio", 0.95, 0.9, 1.0), 0.8, math.log(0.95 / 0.8) / math.log(0.95 / 0.9)),
        (row("max_skew", 0.4, 0.2, 0.6), 0.3, math.log(1.3 / 1.4) / math.log(1.6 / 1.4)),
    ],
    ids=["skew", "nearer the lower margin", "wider below", "ratio", "beyond"],
)
def test_equivalence_is_two_one_sided_tests(one, margin, distance):
    table = add_equivalence(metric_frame([one]), {one["metric"]: margin}, confidence=0.95)
    expected = stats.norm.sf(distance * stats.norm.isf(0.025))
    assert table["equivalence_q"].item() == pytest.approx(expected, rel=1e-9)


def test_p_is_5_percent_where_the_90_percent_interval_ends_at_the_margin():
    error = 0.1
    low, high = (0.02 + side * 1.959964 * error for side in (-1, 1))
    one = metric_frame([row("sc_weat_effect", 0.02, low, high)])
    table = add_equivalence(one, {"sc_weat_effect": 0.02 + 1.644854 * error}, confidence=0.95)
    assert table["equivalence_q"].item() == pytest.approx(0.05, abs=1e-5)


def test_claims_are_corrected_together_and_only_those_with_a_margin():
    sure = [row("max_skew", 0.02, 0.0, 0.1, event="a"), row("sc_weat_effect", 0.0, -0.1, 0.1, event="b")]
    rest = [row("max_skew", 0.15, 0.0, 0.5, event=str(i)) for i in range(8)]
    margins = {"max_skew": 0.2, "sc_weat_effect": 0.13}
    together = add_equivalence(metric_frame([*sure, *rest]), margins, confidence=0.95)["equivalence_q"]
    alone = add_equivalence(metric_frame(sure[:1]), margins, confidence=0.95)["equivalence_q"]
    assert together[0] > alone[0] and together.null_count() == 0
    without = metric_table([metric_frame([*sure, *rest])], audit_id="a")["equivalence_q"]
    assert without.null_count() == 10, "no margin, no claim"
    only = metric_table([metric_frame([*sure, *rest])], audit_id="a", margins={"sc_weat_effect": 0.13})
    assert set(only.drop_nulls("equivalence_q")["metric"]) == {"sc_weat_effect"}


def test_a_claim_of_none_is_rarely_wrong_at_the_margin():
    rng, margin, error = np.random.default_rng(0), 0.3, 0.1
    values = margin + error * rng.standard_normal(2_000)
    rows = [
        row("sc_weat_effect", float(v), float(v - 1.959964 * error), float(v + 1.959964 * error), event=str(i))
        for i, v in enumerate(values)
    ]
    alone = [
        add_equivalence(metric_frame([each]), {"sc_weat_effect": margin}, confidence=0.95)["equivalence_q"].item()
        for each in rows[:500]
    ]
    assert np.mean(np.array(alone) < 0.05) < 0.05 + 3 * 0.01
    together = add_equivalence(metric_frame(rows), {"sc_weat_effect": margin}, confidence=0.95)["equivalence_q"]
    assert (together < 0.05).sum() <= 1


@pytest.mark.parametrize(
    ("name", "margin", "said"), [("max_skw", 0.2, "did you mean `max_skew`?"), ("ndkl", 1, "one of")]
)
def test_a_margin_of_an_unknown_metric_is_refused(name, margin, said):
    with pytest.raises(ValidationError, match=f"(?s){said}") as refused:
        Audit.model_validate({"datasets": {}, "equivalence": {name: margin}})
    assert all(known in str(refused.value) for known in equivalence_metrics())


@pytest.mark.parametrize("margin", [0, -0.1])
def test_a_margin_is_above_0(margin):
    with pytest.raises(ValidationError):
        Audit.model_validate({"datasets": {}, "equivalence": {"max_skew": margin}})


def test_a_change_is_found_at_the_distance_that_its_interval_and_the_correction_give():
    names = dict.fromkeys(("metric", "definition"), "m")
    alone = pl.DataFrame([names | {"ci_low": -1.96, "ci_high": 1.96, "p": 0.4}])
    (found,) = add_detectable_changes(alone, of="factor_effects")["smallest_detectable"]
    assert found == pytest.approx(1.96 + 0.8416, abs=1e-3)  # Cohen (1988), table 2.4.1: 2.80 standard errors
    many = pl.concat([alone] * 9 + [alone.with_columns(ci_high=pl.lit(math.nan))])
    found = add_detectable_changes(many, of="factor_effects")["smallest_detectable"].to_list()
    assert found[9] is None and found[0] == pytest.approx(stats.norm.isf(0.0025) + 0.8416, abs=1e-3)  # p of .05 / 10
    other = alone.with_columns(metric=pl.lit("other"), p=pl.lit(math.nan))
    assert add_detectable_changes(pl.concat([alone, other]), of="factor_effects")["smallest_detectable"].to_list() == [
        pytest.approx(2.8016, abs=1e-3), None,
    ]  # fmt: skip


def test_what_is_told_of_a_change_is_found_by_four_of_five():
    error, tests, rng = 0.3, 20, np.random.default_rng(4)
    names = dict.fromkeys(("metric", "definition"), "m")
    rows = [names | {"ci_low": -1.96 * error, "ci_high": 1.96 * error, "p": 0.9} for _ in range(tests)]
    told = add_detectable_changes(pl.DataFrame(rows), of="factor_effects")["smallest_detectable"][0]
    z = np.abs(rng.normal(np.r_[told, np.zeros(tests - 1)], error, (2000, tests)) / error)
    found = [stats.false_discovery_control(2 * stats.norm.sf(each))[0] < 0.05 for each in z]
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)


def test_a_gain_that_no_family_describes_has_a_detectable_value():
    gain = row("retrieval_recall_gain", 0.01, -0.02, 0.04)
    table = add_power(metric_frame([gain]).with_columns(q="p"), confidence=0.95)
    assert table["smallest_detectable"][0] == pytest.approx(0.03 / 1.96 * 2.8016, abs=1e-4)
    assert not decode(table["reason_codes"][0])
