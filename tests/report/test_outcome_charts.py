"""Charts of outcomes, Trident, labels and effects hold the data: as many marks as values, at their places."""

import itertools
from dataclasses import replace

import polars as pl
import pytest
from chart_data import drawn, names, records, valid, values
from scorecard_rows import answer, frame
from synthetic_table import AGES, GRID, RACES, planted_truth

from plumbline.metrics.paired.comparisons import EFFECT_SCHEMA
from plumbline.report import Reading
from plumbline.report.chapters import charts_page, main_charts
from plumbline.report.chapters.effects import factor_effects
from plumbline.report.chapters.mitigations import adjustment, adjustments
from plumbline.report.chapters.trident import gaps_by_valence, probe_rates
from plumbline.report.charts.labels import balance, label_errors
from plumbline.report.charts.outcomes import harm_rates, max_skew, shares
from plumbline.report.numbers import number, percent
from plumbline.report.vocabulary import group_title

MODELS = (GRID[0][0], GRID[6][0])
FAIRFACE, UTKFACE = "planted-fairface", "planted-utkface"


# --- Trident


@pytest.mark.parametrize(("suite", "dataset", "classes"), [
    ("trident", FAIRFACE, len(RACES)), ("trident_mixed", FAIRFACE, 2 * len(RACES)), ("trident", UTKFACE, len(AGES)),
])  # fmt: skip
def test_trident_has_a_number_a_class_and_probe(table, suite, dataset, classes):
    chart = probe_rates(table, model=MODELS[0], dataset=dataset, suite=suite)
    assert len(values(chart, "shade")) == 15 * classes
    assert valid(chart)


def test_trident_writes_each_share_in_percent_where_its_class_and_probe_meet(table):
    chart = probe_rates(table, model=MODELS[0], dataset=FAIRFACE, suite="trident")
    rows = names(chart)
    columns = {record["column"]: record["x"] for record in records(chart) if "column" in record}
    chosen = table.filter(
        metric="probe_rate", model=MODELS[0], dataset=FAIRFACE, suite="trident", definition="logit", probe="thief",
        condition="before",
    )  # fmt: skip
    assert chosen.height == len(RACES)
    for row in chosen.to_dicts():
        place = {"x": columns["thief"], "y": rows.index(group_title(row["group"]))}
        (cell,) = (r for r in records(chart) if r.get("text") and place.items() <= r.items())
        assert cell["text"] == (f"{100 * row['value']:.0f}" if row["value"] >= 0.01 else percent(row["value"])[:-1])
        assert cell["shade"] == pytest.approx(row["value"], rel=1e-3)
        assert cell["value"] == percent(row["value"])
    order = [columns[word] for word in ("thief", "failure", "person", "individual", "hero", "winner")]
    assert order == sorted(order)


def test_trident_names_the_accuracy_below_without_a_colour(table):
    chart = probe_rates(table, model=MODELS[0], dataset=FAIRFACE, suite="trident")
    last = len(names(chart)) - 1
    accuracy = [record for record in records(chart) if record.get("y") == last]
    assert "accuracy" in names(chart)[-1] and len(accuracy) == 15
    assert not any("shade" in record for record in accuracy)


def test_a_gap_a_model_suite_and_valence(table):
    chart = gaps_by_valence(table, Reading(), MODELS, FAIRFACE)
    assert len(drawn(chart)) == len(MODELS) * 2 * 3
    assert {record["series"] for record in drawn(chart)} == {f"{v} probes" for v in ("negative", "neutral", "positive")}


# --- max skew, harm rates, shares


def test_a_skew_a_model_event_and_attribute_with_its_tip(table):
    chart = max_skew(table, Reading(), MODELS, FAIRFACE)
    assert len(drawn(chart)) == len(MODELS) * 4 * 2
    row = table.filter(
        metric="max_skew", definition="mean_over_pairs", model=MODELS[0], dataset=FAIRFACE, event="crime",
        suite="crime", attribute="race", condition="before",
    ).row(0, named=True)  # fmt: skip
    (record,) = (r for r in drawn(chart) if r["of"] == f"{MODELS[0]}, race, crime labels")
    assert (record["series"], record["panel"], round(record["y"])) == ("race", 0, 0)
    assert record["value"] == number(row["value"]) and record["n"] == f"{row['n']:,}"
    assert len(record["row"]) == 12
    assert valid(chart)


@pytest.mark.parametrize(("columns", "state"), [
    ({"q": 0.001}, "filled"), ({"q": 0.9}, "hollow"), ({"q": 0.9, "equivalence_q": 0.001}, "barred"),
])  # fmt: skip
def test_a_skew_is_drawn_as_what_it_is_evidence_of(table, columns, state):
    chosen = table.with_columns(**{name: pl.lit(value) for name, value in columns.items()})
    chart = max_skew(chosen, Reading(), MODELS, FAIRFACE)
    assert len(values(chart, state)) == len(drawn(chart)) == len(MODELS) * 4 * 2


def test_own_suites_with_an_event_of_one_name_have_a_panel_each():
    own = [
        answer("a", suite=suite, event="low_paid", value=value) for suite, value in (("offices", 0.7), ("jobs", 0.4))
    ]
    chart = max_skew(frame(*own, answer("a")), Reading(), ("a",), "fairface")
    assert names(chart, "panels") == ["crime labels", "low paid (jobs)", "low paid (offices)"]
    assert {(record["panel"], record["filled"]) for record in drawn(chart)} == {(0, 1.5), (1, 0.4), (2, 0.7)}


def test_an_undefined_skew_is_said_in_words(table):
    where = (pl.col("metric") == "max_skew") & (pl.col("event") == "crime") & (pl.col("model") == MODELS[0])
    blank = table.with_columns(value=pl.when(where).then(float("nan")).otherwise("value"))
    chart = max_skew(blank, Reading(), MODELS, FAIRFACE)
    assert values(chart, "words") == ["undefined"] * 2
    assert len(drawn(chart)) == len(MODELS) * 4 * 2 - 2


def test_shares_have_a_mark_a_group_and_model_and_planted_truth(table):
    truth = planted_truth((GRID[0], GRID[6]))
    chart = shares(table, truth, MODELS, dataset=FAIRFACE, suite="crime", event="crime")
    plain = shares(table, None, MODELS, dataset=FAIRFACE, suite="crime", event="crime")
    assert len(drawn(chart)) == len(MODELS) * (len(RACES) + 2)
    assert len(values(chart, "second")) == len(MODELS) * len(RACES) and not values(plain, "second")
    assert "planted truth" in chart.spec["title"]["text"][0] and "planted truth" not in plain.spec["title"]["text"][0]
    assert len(values(chart, "line")) == len(MODELS)
    assert valid(chart)


def test_the_group_that_suffers_most_stands_on_top(table):
    chart = shares(table, None, MODELS, dataset=FAIRFACE, suite="crime", event="crime")
    rates = table.filter(metric="outcome_proportion", suite="crime", event="crime", attribute="race", dataset=FAIRFACE)
    means = rates.filter(condition="before").group_by("group").agg(pl.col("value").mean()).sort("value")
    assert names(chart)[0] == "race" and names(chart)[1] == group_title(means["group"][-1])


def test_a_harm_rate_a_model_and_event_each_event_on_its_own_scale(table):
    chart = harm_rates(table, Reading(), MODELS, FAIRFACE)
    assert len(values(chart, "filled")) == len(MODELS) * 4 == len(drawn(chart))
    assert chart.spec["resolve"]["scale"]["x"] == "independent"


# --- labels


def test_label_charts(inputs):
    dataset = inputs.datasets[0]
    errors = label_errors(dataset)
    assert len(drawn(errors)) == dataset.label_errors.height
    assert values(errors, "line") == [pytest.approx(34 / 2100, rel=1e-4)]
    unknown = replace(dataset, label_errors=dataset.label_errors.with_columns(rate=pl.lit(float("nan"))))
    assert label_errors(unknown) is None, "nothing is drawn where no model gives labels"
    chart = balance(dataset)
    assert len(drawn(chart)) == dataset.label_shares.height == len(values(chart, "from"))
    outside = [record["of"] for record in drawn(chart) if "outside" in record["series"]]
    assert outside == ["man"]  # of whom there are more than declared
    assert valid(errors) and valid(chart)


# --- adjustments


def test_an_adjustment_has_a_dot_a_probe_and_model_and_a_stroke_where_it_was_before(table):
    ids = adjustments(table, FAIRFACE, "trident", leaking=("logit_adjustment",))
    assert ids == ["logit_adjustment_released", "logit_adjustment"]
    for name in ids:
        chart = adjustment(table, MODELS, FAIRFACE, "trident", condition=name)
        found = drawn(chart)
        assert len(found) == len(MODELS) * 15 == len(values(chart, "second")) and name in chart.title
        assert all(r["series"].endswith("better" if r["filled"] >= r["second"] else "worse") for r in found)


# --- effects of a factor

EVENTS = (("crime", "crime"), ("communion", "negative_communion"), ("outcomes", "mean_of_tasks"))
PAIRS = (
    ("size", "small", "large", "3k, atlas", "sa", "la"),
    ("size", "small", "large", "6k, atlas", "sb", "lb"),
    ("data_source", "atlas", "bazaar", "small, 3k", "sa", "sz"),
)


@pytest.fixture(scope="module")
def effects():
    columns = ("factor", "level_first", "level_second", "held", "first", "second")
    rows = [
        dict(zip(columns, pair), dataset="faces", suite=suite, event=event, attribute=attribute, metric="max_skew",
             definition="mean_over_pairs", value=0.1 * (i - 2), ci_low=0.1 * (i - 4), ci_high=0.1 * i, p=0.01, q=0.02,
             n=700, value_first=1.0, value_second=1.2 - 0.1 * i)
        for i, (pair, (suite, event), attribute) in enumerate(itertools.product(PAIRS, EVENTS, ("race", "gender")))
    ]  # fmt: skip
    other = [
        rows[0] | change
        for change in (
            {"attribute": "gender_race"}, {"suite": "crime_pooled"}, {"definition": "smoothed"}, {"dataset": "x"},
            {"metric": "harm_rate", "definition": "top1", "attribute": None},
        )
    ]  # fmt: skip
    return pl.DataFrame(rows + other, schema=EFFECT_SCHEMA)


def test_an_effect_a_pair_event_and_single_attribute_under_its_factor(effects):
    chart = factor_effects(effects, Reading(), "faces")
    found = drawn(chart)
    assert len(found) == len(PAIRS) * len(EVENTS) * 2
    assert found[0]["of"].startswith("sa − la, ") and found[0]["compared"] == "1.0 against 1.2"
    assert [record["filled"] for record in found] == pytest.approx([0.1 * (i - 2) for i in range(len(found))], abs=1e-6)
    assert values(chart, "line") == [0] * len(EVENTS)
    assert names(chart) == [
        "model size", "small − large (3k, atlas)", "small − large (6k, atlas)",
        "data source", "atlas − bazaar (small, 3k)",
    ]  # fmt: skip
    assert valid(chart)


def test_effects_on_skews_of_other_pairs_are_those_on_the_smoothed_one(effects):
    left_out = pl.lit("first: 3 of 21 pairs undefined: no event in one group of the pair")
    plain = (pl.col("event") == "crime") & (pl.col("attribute") == "race") & (pl.col("definition") != "smoothed")
    partial = effects.with_columns(reason=pl.when(plain & (pl.col("level_first") == "small")).then(left_out))
    said = [record["compared"] for record in drawn(factor_effects(partial, Reading(), "faces"))]
    assert [text for text in said if "smoothed" in text] == ["smoothed, 1.0 against 1.2"]
    assert len(said) == len(PAIRS) * len(EVENTS) * 2


def test_effects_that_chance_may_explain_are_hollow(effects):
    chart = factor_effects(effects.with_columns(q=pl.lit(0.4)), Reading(), "faces")
    assert len(values(chart, "hollow")) == len(drawn(chart)) > 0


# --- all


def test_nothing_to_draw_is_none(table, effects):
    empty = table.clear()
    assert max_skew(empty, Reading(), (), FAIRFACE) is None
    assert harm_rates(empty, Reading(), (), FAIRFACE) is None
    assert shares(empty, None, (), dataset=FAIRFACE, suite="crime", event="crime") is None
    assert gaps_by_valence(empty, Reading(), (), FAIRFACE) is None
    assert adjustment(empty, (), FAIRFACE, "trident", condition="logit_adjustment") is None
    assert probe_rates(empty, model="x", dataset=FAIRFACE, suite="trident") is None
    assert factor_effects(effects, Reading(), "elsewhere") is None
    assert main_charts(empty, FAIRFACE) == {}


def test_the_same_rows_give_the_same_specification(table):
    first, again = (max_skew(table, Reading(), MODELS, FAIRFACE) for _ in range(2))
    assert first == again and first.name == "skew-planted-fairface"


def test_main_charts_are_small_pngs_and_a_page(table):
    made = main_charts(table.filter(model=MODELS[0]), FAIRFACE, names=("trident", "harm", "captions"))
    assert list(made) == ["trident", "harm"]
    assert all(chart.png.startswith(b"\x89PNG") and len(chart.png) < 30_000 for chart in made.values())
    page = charts_page(made, title="a <b> cell")
    assert "a &lt;b&gt; cell" in page and page.count("data-chart=") == 2 and 'id="library"' in page
    harm = main_charts(table.filter(pl.col("metric") == "harm_rate"), FAIRFACE, names=("harm", "skew"))
    assert harm.keys() == {"harm"} and harm != {"harm": made["harm"]}
