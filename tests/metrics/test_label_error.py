"""Labelling errors: undone in exact fractions, with intervals that hold the truth, and bounded by brute force."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from plumbline.errors import ConfigError, MetricError
from plumbline.metrics import MetricSettings
from plumbline.metrics.trident.label_error import corrected_rates, rate_bounds
from plumbline.metrics.trident.rows import ProbeTest, label_error_rows, trident_rows
from plumbline.metrics.trident.scores import CORRECT, PROBE
from plumbline.reasons import in_words
from plumbline.statistics import wilson
from plumbline.statistics.groups import Groups

KEY = ["metric", "definition", "suite", "attribute", "group", "event", "probe"]


def test_known_errors_are_undone_in_exact_fractions():
    """By hand: 60 men, 54 labelled man, half of each with the outcome; 40 women, 8 labelled man, a quarter of each.

    Labelled man: 27 + 2 of 62; labelled woman: 3 + 8 of 38.
    """
    found = corrected_rates([[29, 11]], [[62, 38]], [[[54, 6], [8, 32]]])
    m = [[Fraction(54, 62), Fraction(8, 62)], [Fraction(6, 38), Fraction(32, 38)]]
    r = [Fraction(29, 62), Fraction(11, 38)]
    det = m[0][0] * m[1][1] - m[0][1] * m[1][0]
    by_hand = [(m[1][1] * r[0] - m[0][1] * r[1]) / det, (m[0][0] * r[1] - m[1][0] * r[0]) / det]
    assert by_hand == [Fraction(1, 2), Fraction(1, 4)]
    np.testing.assert_allclose(found.rates.value, [[float(p) for p in by_hand]], rtol=1e-12)
    assert found.mean.value == pytest.approx(3 / 8, abs=1e-12) and found.reason == ((),)
    assert (found.rates.ci_low < found.rates.value).all() and (found.rates.value < found.rates.ci_high).all()


def test_the_interval_worked_out_number_by_number():
    """The same counts: Wilson's ends at the effective sizes, half an event more and less, joined by MOVER."""
    found = corrected_rates([[29, 11]], [[62, 38]], [[[54, 6], [8, 32]]])
    z = stats.norm.ppf(0.975)
    det = (54 * 32 - 8 * 6) / (62 * 38)
    smooth = 29.5 / 63, 11.5 / 39
    gap = ((32 / 38 + 6 / 38) * smooth[0] - (8 / 62 + 54 / 62) * smooth[1]) / det  # of the true men and women
    rate, below, above = (29 / 62, 11 / 38), [], []
    for n, share, r, s in ((62, 54 / 62, *(rate[0], smooth[0])), (38, 6 / 38, *(rate[1], smooth[1]))):
        # The truth of every image is known: outcome and truth are drawn together, once each.
        n = n / (1 - share * (1 - share) * gap**2 / (s * (1 - s)))
        centre, half = (r + z**2 / (2 * n)), z * np.sqrt(r * (1 - r) / n + z**2 / (4 * n**2))
        below.append(r - (centre - half) / (1 + z**2 / n))
        above.append((centre + half) / (1 + z**2 / n) - r)
    men = 32 / 38 / det, 8 / 62 / det  # the rate of the men is men[0] of the first rate less men[1] of the second
    value = men[0] * rate[0] - men[1] * rate[1]
    assert found.rates.ci_low[0, 0] == pytest.approx(value - np.hypot(men[0] * below[0], men[1] * above[1]), rel=1e-9)
    assert found.rates.ci_high[0, 0] == pytest.approx(value + np.hypot(men[0] * above[0], men[1] * below[1]), rel=1e-9)


def test_without_errors_rates_and_intervals_are_those_of_the_label():
    hits, sizes = [[[3, 0], [20, 7]], [[1, 9], [0, 30]]], [[40, 9], [50, 30]]
    found = corrected_rates(hits, sizes, [[[40, 0], [0, 9]], [[50, 0], [0, 30]]])
    low, high = wilson(hits, sizes)
    np.testing.assert_allclose(found.rates.value, np.array(hits) / sizes, rtol=1e-12)
    np.testing.assert_allclose(found.rates.ci_low, low, atol=1e-12)
    np.testing.assert_allclose(found.rates.ci_high, high, atol=1e-12)


def test_what_falls_outside_is_clipped_and_kept_raw():
    found = corrected_rates([[4, 12]], [[50, 50]], [[[40, 10], [10, 40]]])
    # By hand: (4/5 · 2/25 - 1/5 · 6/25) / (3/5) = 2/75, and with three hits less -1/75.
    assert found.raw[0, 0] == pytest.approx(2 / 75)
    found = corrected_rates([[1, 12]], [[50, 50]], [[[40, 10], [10, 40]]])
    assert found.raw[0, 0] == pytest.approx(-4 / 75)
    assert found.rates.value[0, 0] == 0 == found.rates.ci_low[0, 0] < found.rates.ci_high[0, 0] < 0.1
    assert found.mean.value == pytest.approx(found.rates.value.mean())


def test_an_interval_wholly_outside_is_none():
    """No man-labelled image has the outcome and nearly all others have: a fifth of them cannot be men."""
    found = corrected_rates([[0, 49]], [[50, 50]], [[[40, 10], [10, 40]]])
    assert found.raw[0, 0] < -0.3 and found.rates.value[0].tolist() == [0, 1]
    assert np.isnan(found.rates.ci_low[0]).all() and np.isnan(found.rates.ci_high[0]).all()


@pytest.mark.parametrize(
    ("confusion", "words"),
    [
        ([[0, 0], [0, 0]], "no image of the class has a true label"),
        ([[9, 0], [1, 0]], "one of the automatic labels has no image of known truth"),
        ([[25, 25], [25, 25]], "hardly be told from chance: 50 of 100 wrong"),
        ([[3, 2], [2, 3]], "hardly be told from chance: 4 of 10 wrong"),
        ([[5, 45], [45, 5]], "hardly be told from chance: 90 of 100 wrong"),
    ],
)
def test_a_labeller_that_cannot_be_undone_says_why(confusion, words):
    other = [[45, 5], [5, 45]]
    found = corrected_rates([[20, 10], [20, 10]], [[50, 50], [50, 50]], [confusion, other])
    assert (
        np.isnan(found.rates.value[0]).all()
        and np.isnan(found.rates.ci_low[0]).all()
        and words in in_words(found.reason[0])
    )
    alone = corrected_rates([[20, 10]], [[50, 50]], [other])
    # The other class is as if it were alone.
    np.testing.assert_array_equal(found.rates.value[1], alone.rates.value[0])
    assert found.mean == alone.mean
    none = corrected_rates([[20, 10]], [[50, 50]], [confusion])
    assert np.isnan([none.mean.value, none.mean.ci_low, none.mean.ci_high]).all()


def test_counts_that_do_not_fit_are_refused():
    for hits, sizes, confusion in (
        ([[9, 1]], [[8, 8]], [[[4, 4], [4, 4]]]),
        ([[1, 1]], [[8, 8]], [[[5, 4], [4, 4]]]),
        ([[1, 1]], [[8, 8, 8]], [[[5, 4], [4, 4]]]),
    ):
        with pytest.raises(MetricError):
            corrected_rates(hits, sizes, confusion)
    with pytest.raises(MetricError, match="error rate"):
        rate_bounds([[1, 1]], [[2, 2]], error=0.5)


def nominal(share, trials):
    """Return the counts between which a correct interval's hits fall all but once in a thousand runs."""
    return stats.binom.ppf([5e-4, 1 - 5e-4], trials, share)


def drawn(seed, *, rates, errors, n, known=1.0, worlds):
    """Draw (w, true, known, automatic, outcome) tables of images whose label errs whatever the outcome is."""
    p, e = np.array(rates), np.array(errors)
    labelled = np.stack([[1 - e[0], e[0]], [e[1], 1 - e[1]]])
    outcome = np.stack([1 - p, p], axis=-1)
    cells = (
        0.5 * np.array([1 - known, known])[None, :, None, None] * labelled[:, None, :, None] * outcome[:, None, None]
    )
    return np.random.default_rng(seed).multinomial(n, cells.ravel(), size=worlds).reshape(-1, 2, 2, 2, 2)


def corrected(table):
    by_label = table.sum(axis=(0, 1))
    return corrected_rates(by_label[None, :, 1], by_label.sum(axis=-1)[None], table[:, 1].sum(axis=-1)[None])


@pytest.mark.parametrize("worlds", [100, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("known", [1.0, 0.4])
@pytest.mark.parametrize(
    ("rates", "errors"),
    [((0.05, 0.3), (0.1, 0.2)), ((0.3, 0.6), (0.05, 0.25)), ((0.0, 0.2), (0.1, 0.1)), ((0.2, 0.2), (0.15, 0.05))],
)
def test_corrected_intervals_hold_the_truth_where_naive_ones_do_not(rates, errors, known, worlds):
    truth, held, naive = np.array(rates), np.zeros(2), np.zeros(2)
    mean = 0
    for table in drawn(4, rates=rates, errors=errors, n=600, known=known, worlds=worlds):
        found = corrected(table)
        held += (found.rates.ci_low[0] <= truth) & (truth <= found.rates.ci_high[0])
        by_label = table.sum(axis=(0, 1))
        low, high = wilson(by_label[:, 1], by_label.sum(axis=-1))
        naive += (low <= truth) & (truth <= high)
        mean += found.mean.ci_low <= truth.mean() <= found.mean.ci_high
    assert (held >= nominal(0.94, worlds)[0]).all() and mean >= nominal(0.94, worlds)[0]
    if rates[0] != rates[1]:
        # The uncorrected interval of the first group holds its true rate in at most three worlds of five.
        assert naive[0] <= 0.6 * worlds
        assert (held - naive)[0] >= 0.3 * worlds


def test_the_interval_is_as_wide_as_resampling_the_joint_table_says():
    """Class × true × automatic × outcome drawn jointly as one multinomial: the slow way, where it works."""
    table = drawn(1, rates=(0.4, 0.6), errors=(0.1, 0.2), n=1000, known=0.5, worlds=1)[0]
    found = corrected(table)
    resampled = np.random.default_rng(0).multinomial(1000, table.ravel() / 1000, size=3000)
    replicates = np.array([corrected(each.reshape(table.shape)).raw[0] for each in resampled])
    low, high = np.quantile(replicates, [0.025, 0.975], axis=0)
    np.testing.assert_allclose(found.rates.ci_high[0] - found.rates.ci_low[0], high - low, rtol=0.08)
    np.testing.assert_allclose(found.rates.ci_low[0], low, atol=0.012)


def test_errors_that_go_with_the_outcome_are_not_undone():
    """Half of the women with the outcome are taken for men: what is undone is the wrong thing, and truth shows it."""
    # 100 men, 20 hits; 100 women, 40 hits of which 20 are labelled man.
    found = corrected_rates([[40, 20]], [[120, 80]], [[[100, 0], [20, 80]]])
    assert found.rates.value[0, 1] == pytest.approx(0.25) and found.rates.value[0, 0] > 0.3


def every_relabelling(hits, sizes, wrong):
    """Return the rates of label 0 when up to `wrong[a]` images labelled a belong to the other label, whichever."""
    images = [[True] * h + [False] * (n - h) for h, n in zip(hits, sizes)]
    leaving = [
        [chosen for k in range(w + 1) for chosen in combinations(range(len(own)), k)] for own, w in zip(images, wrong)
    ]
    rates = set()
    for out in leaving[0]:
        for come in leaving[1]:
            group = [hit for i, hit in enumerate(images[0]) if i not in out] + [images[1][i] for i in come]
            rates.add(Fraction(sum(group), len(group)))
    return min(rates), max(rates)


@pytest.mark.parametrize("hits", [(0, 0), (1, 3), (5, 0), (2, 6), (5, 7), (4, 4)])
def test_bounds_are_the_extremes_over_every_relabelling(hits):
    sizes = (5, 7)
    found = rate_bounds([hits], [sizes], error=0.4)
    for label in (0, 1):
        ordered = slice(None, None, 1 if label == 0 else -1)
        low, high = every_relabelling(hits[ordered], sizes[ordered], (2, 2))
        assert found.low.value[0, label] == pytest.approx(float(low), abs=1e-12)
        assert found.high.value[0, label] == pytest.approx(float(high), abs=1e-12)


def test_bounds_by_hand_and_of_empty_groups():
    """20 labelled man of whom 5 have the outcome, 10 labelled woman of whom 4 have it; 15% is 3 and 1 images."""
    found = rate_bounds([[5, 4], [0, 0]], [[20, 10], [0, 3]], error=0.15)
    assert found.low.value[0, 0] == pytest.approx(2 / 18) and found.high.value[0, 0] == pytest.approx(6 / 18)
    assert found.low.value[0, 1] == pytest.approx(3 / 12) and found.high.value[0, 1] == pytest.approx(7 / 12)
    assert (found.low.ci_low[0] < found.low.value[0]).all() and (found.high.value[0] < found.high.ci_high[0]).all()
    assert np.isnan(found.low.value[1, 0]) and found.high.value[1, 1] == 0
    exact = rate_bounds([[5, 4]], [[20, 10]], error=0.0)
    np.testing.assert_array_equal(exact.low.value, exact.high.value)


@pytest.fixture(scope="module")
def labelled(make_cell):
    """Return a cell of 840 images whose automatic label errs for 1 man in 10 and 1 woman in 5."""
    cell = make_cell(n=840, suites=("trident",))
    rng = np.random.default_rng(2)
    wrong = rng.random(840) < np.where(cell.records["gender"].to_numpy() == "man", 0.1, 0.2)
    other = pl.col("gender").fill_null("man").replace({"man": "woman", "woman": "man"})
    auto = pl.when(pl.Series(wrong)).then(other).otherwise(pl.col("gender").fill_null("man"))
    return replace(cell, records=cell.records.with_columns(auto_gender=auto))


def rows_of(cell, **changes):
    settings = MetricSettings(**({"seed": 5, "resamples": 200, "permutations": 200, "min_group": 10} | changes))
    return trident_rows(cell, settings=settings).filter(suite="trident_mixed")


def row(frame, **key):
    rows = frame.filter(*[pl.col(name) == wanted for name, wanted in key.items()])
    assert rows.height == 1, (key, rows.height)
    return rows.row(0, named=True)


def test_rows_where_the_truth_is_known(labelled, quick):
    frame = rows_of(labelled)
    assert set(frame["definition"]) == {
        "logit", "paper", "released", "cosine", "by_valence", "confident_labels", "true_labels", "label_corrected",
    }  # fmt: skip
    assert frame.select(KEY).is_duplicated().sum() == 0
    records = labelled.records
    logits = labelled.logits["trident"]
    column = [c.id for c in logits.suite.candidates].index("hero")
    became = logits.logits[:, [*range(7), column]].argmax(axis=1) == 7
    one_class, men = (
        (records["race"].fill_null("") == "Indian").to_numpy(),
        (records["gender"].fill_null("") == "man").to_numpy(),
    )
    key = {"metric": "probe_rate", "probe": "hero", "group": "Indian_man"}
    true = row(frame, definition="true_labels", **key)
    assert true["value"] == pytest.approx(became[one_class & men].mean()) and true["n"] == (one_class & men).sum()
    corrected = row(frame, definition="label_corrected", **key)
    auto, known = (records["auto_gender"] == "man").to_numpy(), records["gender"].is_not_null().to_numpy()
    rate = [became[one_class & side].mean() for side in (auto, ~auto)]
    right = [(men == wanted)[one_class & known & side].mean() for wanted, side in ((True, auto), (False, ~auto))]
    by_hand = (right[1] * rate[0] - (1 - right[0]) * rate[1]) / (right[0] + right[1] - 1)
    assert corrected["value"] == pytest.approx(max(by_hand, 0)) and corrected["n"] == one_class.sum()
    naive = row(frame, definition="logit", **key)
    width = {name: each["ci_high"] - each["ci_low"] for name, each in (("naive", naive), ("undone", corrected))}
    assert width["undone"] > width["naive"]


def test_macro_accuracy_by_true_and_corrected_labels(labelled):
    frame = rows_of(labelled).filter(metric="macro_accuracy", probe="hero")
    found = {
        definition: row(frame, definition=definition) for definition in ("paper", "true_labels", "label_corrected")
    }
    for each in found.values():
        assert each["ci_low"] < each["value"] < each["ci_high"]
        assert abs(each["value"] - found["paper"]["value"]) < 0.05
    assert found["true_labels"]["n"] < found["label_corrected"]["n"] == found["paper"]["n"]


@pytest.mark.parametrize("without", ["no column", "no value"])
def test_rows_where_no_truth_is_known(labelled, without):
    dropped = labelled.records.drop("gender")
    blank = labelled.records.with_columns(gender=pl.lit(None, dtype=pl.String))
    frame = rows_of(replace(labelled, records=dropped if without == "no column" else blank), label_error=0.1)
    assert not {"true_labels", "label_corrected"} & set(frame["definition"])
    assert frame.select(KEY).is_duplicated().sum() == 0
    key = {"metric": "probe_rate", "probe": "hero"}
    for name in ("Indian_man", "Indian_woman"):
        plain, low, high = (
            row(frame, definition=definition, group=name, **key)
            for definition in ("logit", "label_error_low", "label_error_high")
        )
        assert low["value"] <= plain["value"] <= high["value"] and low["value"] < high["value"]
        assert low["n"] == plain["n"] and "if up to 10% of the automatic labels are wrong (assumed" in low["reason"]
    none = rows_of(replace(labelled, records=dropped), label_error=0.0)
    same = none.filter(pl.col("definition").str.starts_with("label_error") | (pl.col("definition") == "logit"))
    for _, group in same.filter(metric="probe_rate").group_by("probe", "group"):
        assert group["value"].n_unique() == 1 and group.height == 3


def test_a_class_without_truth_is_bounded_by_the_errors_of_the_others(labelled):
    unknown = pl.when(pl.col("race") == "White").then(None).otherwise("gender")
    frame = rows_of(replace(labelled, records=labelled.records.with_columns(gender=unknown)))
    bounded = frame.filter(definition="label_error_low", probe="hero")
    assert set(bounded["group"]) == {"White_man", "White_woman"}
    assert bounded["reason"].str.contains(r"upper end of \d+ of \d+ in other classes").all()
    corrected = frame.filter(metric="probe_rate", definition="label_corrected", probe="hero", group="White_man")
    assert np.isnan(corrected["value"][0]) and "no image of the class has a true label" in corrected["reason"][0]
    macro = row(frame, metric="macro_accuracy", definition="label_corrected", probe="hero")
    assert "2 of 14 groups cannot be corrected" in macro["reason"] and np.isfinite(macro["value"])


def test_every_new_row_has_an_interval_or_a_reason(labelled):
    unknown = pl.when(pl.col("race") == "White").then(None).otherwise("gender")
    frame = rows_of(replace(labelled, records=labelled.records.with_columns(gender=unknown)))
    chosen = frame.filter(pl.col("definition").str.contains("label"))
    assert chosen.filter(pl.col("ci_low").is_nan() & pl.col("reason").is_null()).height == 0
    defined = chosen.filter(pl.col("value").is_not_nan())
    assert ((defined["ci_low"] <= defined["value"]) & (defined["value"] <= defined["ci_high"])).all()
    assert ((defined["value"] >= 0) & (defined["value"] <= 1)).all()


def test_a_clipped_rate_says_so(make_cell, quick):
    frame = rows_of(make_cell(n=840, suites=("trident",)))
    clipped = frame.filter(pl.col("reason").fill_null("").str.contains("clipped to 0 .. 1 from -0"))
    assert clipped.height and (clipped["value"] == 0).all() and set(clipped["definition"]) == {"label_corrected"}


def test_a_rate_that_no_unrelated_error_can_give_has_no_interval_and_says_why(quick):
    """Those labelled man never become the probe, the others nearly always, and a fifth of each is mislabelled."""
    automatic, true = np.repeat([0, 1], 50), np.r_[np.repeat([0, 1], [40, 10]), np.repeat([0, 1], [10, 40])]
    outcomes = np.where((automatic == 1) & (np.arange(100) > 50), PROBE, CORRECT)[None]
    mixed = Groups("race_gender", ("White_man", "White_woman"), automatic)
    test = ProbeTest({}, quick, {"hero": "positive"}, outcomes, mixed, 4)
    rows = {each.get("group"): each for each in label_error_rows(test, true)}
    assert np.isnan(rows["White_man"]["ci_low"]) and rows["White_man"]["value"] == 0
    assert "clipped to 0 .. 1 from -0.3" in in_words(rows["White_man"]["reason"])
    assert "errors go with the model's answer" in in_words(rows["White_man"]["reason"])


def test_an_assumed_error_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="label_error"):
        MetricSettings(label_error=0.5)
