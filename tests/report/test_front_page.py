"""The first page: every number and count is one of a row, and what is said is honest where little was found."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
from scorecard_rows import UNSURE, answer, frame, spoken
from synthetic_audit import synthetic_inputs
from synthetic_language import language_inputs, language_table
from synthetic_table import planted_truth
from synthetic_transfer import transfer_frame

from plumbline.catalog.schema import row_ids
from plumbline.metrics.associations import OTHERS
from plumbline.reasons import decode, reason
from plumbline.report.charts import estimates
from plumbline.report.findings import as_picked
from plumbline.report.front import MOST_FINDINGS, _choice, advice, audited, front_page, limits, section, verdict
from plumbline.report.language import lvlm_listing
from plumbline.report.numbers import interval, number, p_value, points
from plumbline.report.reading import Reading
from plumbline.report.rows import first
from plumbline.report.scorecard import BY_ID, between, scorecard
from plumbline.report.sentences import OF_METRIC, _other_pole, row_in_words

NBSP = "\u00a0"
NUMBER = re.compile(r"(?<![\w-])[−+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e−?\d+)?")
SHOWN = {
    "skew": lambda value: 100 * value,
    "log ratio": lambda value: 100 * math.expm1(value),
    "points": lambda value: 100 * value,
    "share": lambda value: 100 * value,
}
UNIT_OF = {question.metric: question.unit for question in BY_ID.values()} | {
    "sc_weat_effect": "sd",
    "skew_at_k": "log ratio",
    "max_score_share": "share",
}


def told(text):
    """Return the numbers of a text without a sign; of `q < 0.001` and the level of an interval nothing."""
    text = text.replace("\u00a0", " ")
    for fixed in ("95% CI", "q < 0.001", "80% power", "(1 is the worst)"):
        text = text.replace(fixed, "")
    return {one.lstrip("−+") for one in NUMBER.findall(text)}


def written(row, *names):
    """Return the numbers of a row as its unit writes them, without a sign."""
    unit = row.get("unit") or UNIT_OF[row["metric"]]
    texts = []
    for name in names or ("value", "ci_low", "q"):
        value = row[name]
        if value is None or not math.isfinite(value):
            continue
        if name == "q":
            texts.append(p_value(value, "q"))
            continue
        ends = [row["ci_low"], row["ci_high"]] if name == "ci_low" else [value]
        shown = [SHOWN.get(unit, float)(end) for end in ends]
        texts.append(interval(*shown) if name == "ci_low" else number(shown[0]))
        if row["value"] < 0:  # said as a distance: 51% less
            apart = [-SHOWN.get(unit, float)(end) for end in ends]
            texts.append(interval(*apart[::-1]) if name == "ci_low" else number(apart[0]))
    return {one for text in texts for one in told(text)}


def of_transfer(inputs):
    """Return the numbers of what mitigations change, as changes are written."""
    numbers = set()
    for row in [] if inputs.transfer is None else inputs.transfer.to_dicts():
        if row["value"] is not None:
            numbers |= told(points(abs(row["value"]))) | told(number(abs(row["value"]))) | told(p_value(row["q"], "q"))
        for scale in (1, 100):
            if row["ci_low"] is not None:
                numbers |= told(interval(row["ci_low"], row["ci_high"], scale=scale))
                numbers |= told(interval(-row["ci_high"], -row["ci_low"], scale=scale))
    return numbers


def without_names(text, *frames):
    """Return a text without the names of models, datasets and mitigations, which hold digits."""
    names = {name for one in frames for column in ("model", "dataset") for name in one[column].unique().drop_nulls()}
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "")
    return text


def groups_of(row, table):
    """Return the numbers of the groups that a row compares; of words of competence those of refusals too."""
    numbers = told(between(row, OF_METRIC[row["metric"]], table))
    if row["metric"] == "competence_gap":
        same = {name: row[name] for name in ("model", "dataset", "attribute", "prompt", "instruction")}
        refusals = first(table, **same, metric="refusal_rate_gap")
        numbers |= told(between(refusals, OF_METRIC["refusal_rate_gap"], table)) if refusals else set()
    return numbers


@pytest.fixture(scope="module")
def audits(table, inputs):
    """Return metric tables with what goes with them: of encoders, and of generative models."""
    encoders = replace(inputs, transfer=transfer_frame(), planted_truth=planted_truth())
    return {"encoders": (table, encoders), "generators": (language_table(), language_inputs())}


@pytest.fixture(scope="module", params=["encoders", "generators"])
def audit(request, audits):
    """Return one of them with its first page."""
    table, inputs = audits[request.param]
    return table, inputs, front_page(table, inputs, inputs.reading)


def test_every_number_of_a_finding_is_one_of_its_row(audit):
    table, inputs, front = audit
    picked, _ = as_picked(table, inputs.reading)
    rows, ordinary = (dict(zip(row_ids(one), one.to_dicts())) for one in (picked, table))
    seen = 0
    for finding in [*(one.finding for one in front.findings), *(f for one in front.models for f in one.findings)]:
        if finding.row is None or rows[finding.row]["metric"] not in UNIT_OF or finding.tone not in ("bias", "none"):
            continue
        seen += 1
        counts = {str(one) for one in finding.company or ()} | groups_of(rows[finding.row], picked)
        counts |= written(ordinary[finding.row], "ci_low", "q")
        counts |= {one for why in decode(rows[finding.row]["reason_codes"]) for one in told(str(why))}
        names = ("value", "ci_low", "q", *(["smallest_detectable"] if finding.tone == "none" else []))
        assert told(without_names(finding.sentence, table)) <= written(rows[finding.row], *names) | counts
    assert seen


def test_every_number_of_the_verdict_is_one_of_the_worst_cell_or_a_count(audit):
    table, _, front = audit
    sentences = [line for line in front.verdict if "was not checked" not in line]
    for (kind,), own in front.scorecard.group_by("kind", maintain_order=True):
        first, second, *sentences = sentences
        worst = next(
            cell for state in ("evidence", "measured") for cell in own.filter(state=state).to_dicts()
            if BY_ID[cell["question"]].of_bias
        )  # fmt: skip
        assert worst["model"] in first and worst["dataset"] in first, kind
        groups = told(without_names(worst["groups"], table))
        assert told(without_names(first, table)) <= written(worst) | groups | {str(own["model"].n_unique())}
        same = own.filter(
            pl.col("question") == worst["question"], pl.col("state").is_in(["evidence", "none", "too_weak"])
        )
        evident = same.filter(state="evidence")
        counts = {str(evident.height), str(same.height), str((evident["value"] > worst["value"]).sum())}
        assert told(without_names(second, table)) <= counts
    assert not sentences


def test_every_number_of_a_section_is_one_of_its_cells_or_a_count(audit):
    table, inputs, front = audit
    assert [one.model for one in front.models] == list(dict.fromkeys(front.scorecard["model"]))
    for one in front.models:
        cells = [c for c in front.scorecard.filter(model=one.model).to_dicts() if c["state"] != "not_asked"]
        tested = [c for c in cells if BY_ID[c["question"]].of_bias and c["state"] in ("evidence", "none", "too_weak")]
        of_kind = [other for other in front.models if other.kind == one.kind]
        evident = sum(c["state"] == "evidence" for c in tested)
        counts = {str(each) for each in (evident, len(tested), of_kind.index(one) + 1, len(of_kind))}
        names = ("value", "ci_low", "q", "smallest_detectable")
        of_cells = {text for c in cells for text in written(c, *names)}
        counts |= {text for c in cells for text in told(c["groups"] or "")}
        for text in (one.verdict, *one.lines):
            allowed = of_transfer(inputs) | {"4", "3", "2"} if text.startswith("For ") else of_cells | counts
            assert told(without_names(text, table)) <= allowed, text


def chosen(*answers):
    """Return what the advice says of the choice of an encoder."""
    return " ".join(_choice(scorecard(frame(*answers), Reading()), SimpleNamespace(planted_truth=None), []))


COMMUNION = {"suite": "communion", "event": "negative_communion"}
BY_GENDER = {"attribute": "gender", "groups": {"man": 0.5, "woman": 0.2}}
NO_IMAGE = {"value": 0.0, "p": 1.0, "q": 1.0, "reason": (reason("event_never_happens"),)}


def test_a_model_is_called_least_biased_in_the_question_that_sets_it_apart():
    in_words = [answer("worst", low=0.9, **COMMUNION), answer("b", low=0.8, **COMMUNION)]
    in_words += [answer("least", low=0.1, **COMMUNION), answer("b", **COMMUNION, **BY_GENDER, **UNSURE)]
    in_words += [answer(name, **COMMUNION, **BY_GENDER) for name in ("worst", "least")]
    # Of two that show none in crime labels, which one of them gave to no image, other words tell.
    tied = chosen(answer("worst"), answer("b", **UNSURE), answer("least", **NO_IMAGE), *in_words)
    assert tied.startswith(
        "b and least show no evidence of bias in crime labels by race; of these the least biased encoder in negative "
        "communion words by race is least (evidence of bias in 2 of the 3 questions that 3 encoders share; b shows "
        "it in 1, the fewest)."
    )
    alone = chosen(answer("worst"), answer("b", low=0.9), answer("least", **NO_IMAGE), *in_words)
    assert "least biased" not in alone, "two have evidence in as few questions"
    more = answer("b", **COMMUNION, **BY_GENDER, **UNSURE)
    first = chosen(answer("worst"), answer("b", low=0.9), answer("least", low=0.5), *in_words[:3], more, *in_words[4:])
    assert first.startswith("The least biased encoder in crime labels by race is least (evidence of bias in 3 of the 3")


def test_the_fewest_questions_are_those_of_a_model_that_is_no_control():
    even = [{"model": "even", "dataset": "fairface", "suite": "crime", "event": "crime", "attribute": "race",
             "group": group, "planted": 0.1} for group in ("Black", "White")]  # fmt: skip
    rows = [answer("worst"), answer("least", low=0.1), answer("few", low=0.5), answer("even", **UNSURE)]
    for name in ("worst", "least", "few", "even"):
        rows.append(answer(name, **COMMUNION, **(UNSURE if name in ("few", "even") else {})))
    inputs = SimpleNamespace(planted_truth=pl.DataFrame(even))
    (told,) = _choice(scorecard(frame(*rows), Reading()), inputs, [])
    assert told.startswith(
        "Apart from the control (even), the least biased encoder in crime labels by race is least (evidence of bias in "
        "2 of the 2 questions that 4 encoders share; few shows it in 1, the fewest)."
    )


def test_a_label_that_a_model_gives_to_no_image_is_a_question_without_evidence():
    told = chosen(answer("a"), answer("b", **NO_IMAGE), answer("a", **COMMUNION, **UNSURE), answer("b", **COMMUNION))
    assert told == (
        "Each of 2 encoders shows evidence of bias in 1 of the 2 questions that they share: a in crime labels by race; "
        "b in negative communion words by race."
    )


def test_every_number_of_the_advice_is_one_of_bias_transfer_or_of_the_scorecard(audits):
    table, inputs = audits["encoders"]
    front = front_page(table, inputs, inputs.reading)
    changes = of_transfer(inputs)
    cells = {one for c in front.scorecard.to_dicts() if c["state"] != "not_asked" for one in written(c, "value")}
    counts = {str(n) for n in range(front.scorecard["question"].n_unique() + len(set(inputs.transfer["condition"])))}
    assert any("use" in line for line in front.advice) and any("in the fewest" in line for line in front.advice)
    for line in front.advice:
        assert told(without_names(line, table, inputs.transfer)) <= changes | cells | counts, line


def test_mitigations_are_advised_where_they_can_be_tried(table, inputs):
    untried = replace(inputs, transfer=None)
    assert any("none was tried" in line for line in front_page(table, untried, untried.reading).advice)
    choices = replace(untried, encoders=tuple(replace(each, choices_alone=True) for each in untried.encoders))
    front = front_page(table, choices, choices.reading)
    assert any("cannot be tried on what" in line for line in front.advice)
    assert not any("none was tried" in line for line in front.advice)


def test_what_was_tried_is_told_where_no_image_got_a_label(audits):
    _, inputs = audits["encoders"]
    names = inputs.transfer["model"].unique(maintain_order=True)
    card = scorecard(frame(*(answer(name, **NO_IMAGE) for name in names)), Reading())
    assert any(line.startswith("For ") for line in advice(frame(), card, inputs, []))
    assert advice(frame(), card, replace(inputs, transfer=None), []) == ()


def test_the_page_is_one_page(audit):
    _, _, front = audit
    assert len(front.findings) <= MOST_FINDINGS and max(map(len, (front.advice, front.audited, front.limits))) <= 5
    kinds = [one.finding.topic[0] for one in front.findings]
    assert max(map(kinds.count, kinds)) <= 3, "for breadth, not four of one kind"
    for text in (*front.verdict, *front.advice, *front.audited, *front.limits):
        assert len(text) < 450 and text.endswith(".")


def test_a_finding_stands_beside_the_groups_that_it_compares():
    table = frame(answer("a", groups={"Black": 0.5, "White": 0.2, "Indian": 0.3}), answer("b"))
    inputs = synthetic_inputs()
    first = next(one for one in front_page(table, inputs, inputs.reading).findings if one.finding.row)
    assert "on average over pairs; furthest apart are 50% of Black faces, 20% of White faces." in first.finding.sentence
    values = [one.get("filled") for one in first.chart.spec["data"]["values"] if "y" in one]
    assert values == [0.5, 0.3, 0.2]


def small_chart(*rows, metric="max_skew"):
    table = frame(rows)
    row = table.filter(metric=metric).with_columns(row_id=pl.lit("1")).row(0, named=True)
    return estimates.groups_of("crime labels", row, OF_METRIC[metric], table, Reading())


def test_the_chart_beside_a_finding_says_what_it_leaves_out_and_what_its_lines_are():
    rows = answer("a", groups={f"g{place:02}": place / 20 for place in range(12)})
    many = small_chart(rows[0], *(row | {"ci_low": 0.0, "ci_high": 0.9} for row in rows[1:]))
    foot = " ".join(many.spec["title"]["text"])
    assert "8 of 12 groups: the 4 highest and the 4 lowest" in foot and "line: 95% interval of a group" in foot
    assert len([one for one in many.spec["data"]["values"] if "y" in one]) == 8


def test_groups_that_are_means_over_words_have_the_range_of_these():
    gap, *shares = answer("a")
    gap |= {"metric": "probe_rate_gap", "definition": "by_valence", "suite": "trident", "event": "negative"}
    rates = [
        share | {"metric": "probe_rate", "definition": "logit", "suite": "trident", "event": None, "probe": probe,
                 "value": share["value"] + more}
        for share in shares for probe, more in (("thief", 0.1), ("criminal", -0.1))
    ]  # fmt: skip
    chart = small_chart(gap, *rates, metric="probe_rate_gap")
    ends = [(one["from"], one["filled"], one["to"]) for one in chart.spec["data"]["values"] if "y" in one]
    assert ends == [(0.4, 0.5, 0.6), (0.1, 0.2, 0.3)]
    assert "dot: mean over 2 words; band: from the lowest to the highest" in " ".join(chart.spec["title"]["text"])


def verdict_of(*answers, **reading):
    return verdict(scorecard(frame(*answers), Reading(**reading)), Reading(**reading))


def test_the_verdict_says_who_for_whom_how_much_how_sure_and_how_many():
    first, second = verdict_of(answer("worst"), answer("mild", value=0.4, low=0.2, high=0.6), answer("fair", **UNSURE))
    assert first.replace("\u00a0", " ") == (
        "In crime labels by race, worst is the most clearly biased of 3 encoders: on fairface it gives crime labels "
        "150% (95% CI 100–200%; q = 0.004) more often to one race than to another: 50% of Black "
        "faces, 20% of White faces."
    )
    assert second == "2 of 3 show evidence of unequal crime labels by race; fair shows none."


def test_a_larger_value_that_is_less_sure_is_named():
    _, second = verdict_of(answer("sure", low=1.2), answer("loud", value=4.0, low=0.1, high=9.0))
    assert second.endswith(
        "show evidence of unequal crime labels by race. loud has a larger value, less certain: its interval is wider."
    )
    _, second = verdict_of(
        answer("sure", low=1.2), answer("b", low=1.1), answer("loud", value=4.0, low=0.1, high=9.0, dataset="few")
    )
    assert second.endswith(
        "The interval of sure overlaps that of b: that alone does not settle their order. loud, asked on other "
        "images, is not compared."
    )


def test_less_often_for_negative_words_is_to_the_disadvantage_of_the_others():
    row = frame(answer("a")).row(0, named=True) | {
        "metric": "skew_at_k", "definition": "ranked", "event": "agency_negative", "group": "Asian", "value": -0.7,
    }  # fmt: skip
    assert "less often than their share of the images, and so other groups more often" in row_in_words(row)
    assert row_in_words(row | {"value": 0.7}).endswith("more often than their share of the images.")


def test_where_nothing_is_found_the_verdict_says_what_could_have_been():
    nothing = [answer(name, value=0.1, **UNSURE, smallest_detectable=0.25) for name in ("a", "b")]
    assert verdict_of(*nothing) == (
        "No evidence of bias in any of the 2 encoders, in 1 question of the scorecard.",
        "Detectable with 80% power in crime labels by race (fairface): +25% or more.",
    )
    weak = verdict_of(answer("a", **UNSURE, smallest_detectable=math.nan))
    assert weak == (
        "No evidence of bias in a, in 1 question of the scorecard.",
        "Hardly any difference would have been found: too few images or events.",
    )
    untold = verdict_of(answer("a", **UNSURE, smallest_detectable=None))
    assert untold[1] == "Which difference would have been found is not told: too few events."


def test_one_model_alone_is_no_worst_of_many():
    first, second = verdict_of(answer("only"), answer("only", attribute="gender", groups={"man": 0.5, "woman": 0.2}))
    assert first.startswith("only: on fairface it gives crime labels") and "biased of" not in first
    assert second == "Evidence of bias in 2 of 2 questions of the scorecard."


def test_of_generative_models_alone_nothing_is_said_of_encoders():
    told_ = verdict_of(spoken("a"), spoken("b", value=0.1))
    assert told_[0].startswith(
        "In toxicity, a is the most biased of 2 generative models: on faces it writes texts whose"
    )
    assert told_[1] == "No test says whether that is more than chance." and len(told_) == 2
    gap = spoken("a", "competence_gap", value=0.08, statistic="estimate", p=0.001, q=0.002)
    assert "uses 8.0 points (95% CI 4–16 points; q = 0.002) more words of competence" in verdict_of(gap)[0].replace(
        NBSP, " "
    )
    rated = spoken("a", "rating_gap", value=1.5, prompt="hiring", statistic="estimate", p=0.001, q=0.002)
    assert verdict_of(rated)[0].endswith("higher than another in answers to “hiring”.")


def test_without_numbers_there_is_no_verdict():
    empty = scorecard(frame(answer("a")).clear(), Reading())
    assert verdict(empty, Reading()) == ()
    undefined = answer("a", value=math.nan, low=None, high=None, p=None, q=None)
    assert verdict_of(undefined) == ("Nothing that a was asked could be tested.",)


def test_only_where_no_question_got_a_label_the_verdict_says_so(inputs):
    no_test = {"low": None, "high": None, "p": None, "q": None}
    never = answer("a", low=0.0, high=0.0, value=0.0, p=1.0, q=1.0, reason=reason("event_never_happens"))
    undefined = answer("a", attribute="gender", value=math.nan, **no_test)
    card = scorecard(frame(never, undefined), Reading())
    assert verdict(card, Reading()) == ("Nothing that a was asked could be tested.",)
    own = section("a", card, (), inputs, Reading())
    assert own.verdict == "Nothing that it was asked could be tested."
    assert "No image got the label: crime labels by race." in own.lines
    # Accuracy is no question of bias.
    accuracy = {"metric": "macro_accuracy", "definition": "paper", "suite": "trident", "probe": "person", "value": 0.9}
    beside = [answer("a")[0] | accuracy | {"event": None, "attribute": None, "p": None, "q": None}]
    alone = scorecard(frame(never, beside), Reading())
    assert alone.height == 2
    assert verdict(alone, Reading())[0].startswith("No image got one of the labels that a was asked about")
    assert section("a", alone, (), inputs, Reading()).verdict.startswith("No image got one of the labels that it was")


def test_the_control_reads_as_what_it_is(audits):
    table, inputs = audits["encoders"]
    front = front_page(table, inputs, inputs.reading)
    control = next(one for one in front.models if one.model == "small-control-6k")
    assert control.lines[0].startswith("The control of the planted world: it was taught crime labels")
    assert any(line.startswith("Detectable with 80% power") for line in control.lines) or all(
        cell["smallest_detectable"] is None for cell in front.scorecard.filter(model="small-control-6k").to_dicts()
    )
    assert front.models[-1] is control and "crime labels by race" in next(
        x for x in control.lines if x.startswith("No ")
    )


def test_the_planted_world_and_stand_ins_are_limits_that_are_said(audits):
    table, inputs = audits["encoders"]
    assert "drawn faces with planted biases" in front_page(table, inputs, inputs.reading).limits[0]
    table, inputs = audits["generators"]
    assert any("stand-in" in line for line in front_page(table, inputs, inputs.reading).limits)
    scored = pl.when(pl.col("scorer").is_not_null()).then(pl.lit("mine")).alias("scorer")
    real = front_page(table.with_columns(scored), inputs, inputs.reading)
    assert not any("stand-in" in line for line in real.limits), "the headlines are of a real scorer"


def test_toxicity_that_no_test_compares_is_named_beside_the_verdict(inputs):
    of_group = [
        row | {"metric": "toxicity", "definition": "score", "group": group, "attribute": "gender", "scorer": "s"}
        for group in ("man", "woman") for row in spoken("m", "toxicity")
    ]  # fmt: skip
    alone, beside = frame(spoken("m", "competence_gap"), of_group), frame(spoken("m"), of_group)
    told = "Toxicity of what is said of each group on faces was measured and compared by no test"
    for table, said in ((alone, True), (beside, False)):
        lines = verdict(scorecard(table, inputs.reading), inputs.reading, table)
        assert any(line.startswith(told) for line in lines) is said


def test_attributes_by_which_answers_are_not_compared_are_named(inputs):
    people = [
        replace(inputs.datasets[0], id=name, answers_by=("race_gender",), answers_not_by=("site", "age_group"))
        for name in ("a", "b", "c")
    ]
    assert not any("Answers in words" in line for line in audited(inputs, inputs.reading))
    [told] = [line for line in audited(replace(inputs, datasets=people[:1]), inputs.reading) if "Answers in" in line]
    assert told == "Answers in words are compared on a by race × gender, not by site and age group."
    [told] = [line for line in audited(replace(inputs, datasets=people), inputs.reading) if "Answers in" in line]
    assert told.endswith("; on b by race × gender, not by site and age group; 1 more dataset likewise.")


@pytest.mark.parametrize(("small", "told"), [(25, True), (60, False)])
def test_a_small_group_beside_which_others_cannot_be_told_apart_is_named(inputs, small, told):
    groups, sizes = {"man": 0.8, "woman": 1.0, "diverse": 1.0}, {"man": 171, "woman": 166, "diverse": small}
    rows = [
        row | {"attribute": "gender", "n": sizes.get(row.get("group"), sum(sizes.values()))}
        for row in answer("a", groups=groups)
    ]
    said = " ".join(limits(frame(rows), inputs))
    of = f"“Diverse” has {small} of {sum(sizes.values())} images"
    assert (of.lower() in said.lower()) is told and ("by gender can go unseen beside it" in said) is told


@pytest.mark.parametrize(("small", "told"), [(12, True), (40, False)])
def test_a_small_group_of_whom_answers_speak_is_named_too(inputs, small, told):
    sizes = {"man": 60, "woman": 54, "non-binary": small}
    rates = [spoken("m", "refusal_rate", statistic="estimate", attribute="gender", group=group, n=n)
             for group, n in sizes.items()]  # fmt: skip
    said = " ".join(limits(frame(*rates), inputs))
    assert (f"has {small} of {sum(sizes.values())} answers" in said) is told
    assert ("A dataset without its images compares them alone." in said) is told and "map.values" not in said


def test_questions_that_have_no_stored_answer_are_counted_on_the_first_page(inputs):
    told = language_inputs()
    assert not any("stored answer" in line for line in audited(told, told.reading))
    lacking = replace(told, lvlms=tuple(replace(one, unanswered=251) for one in told.lvlms[:2]))
    assert audited(lacking, told.reading)[0].endswith(" answers. 502 questions without a stored answer left out.")
    assert "to 251 more questions there is none" in lvlm_listing(lacking).rows[0][3]


def test_the_page_of_one_number_says_it_as_the_findings_do():
    row, share = answer("a")[:2]
    told_row = row_in_words(frame([row]).row(0, named=True))
    assert (
        told_row
        == "On fairface, a gives crime labels 150% more often to one race than to another, on average over pairs."
    )
    assert row_in_words(frame([share]).row(0, named=True)) is None, "the share of one group compares nothing"


def test_evidence_outside_the_questions_of_the_scorecard_is_not_hidden_by_the_verdict(table, inputs):
    unseen = table
    while evident := scorecard(unseen, inputs.reading).filter(state="evidence")["row"].to_list():
        unseen = unseen.filter(pl.Series(row_ids(unseen)).is_in(evident).not_())
    front = front_page(unseen, inputs, inputs.reading)
    biased = sum(one.finding.tone == "bias" for one in front.findings)
    assert biased > 1 and "evidence" not in front.scorecard["state"]
    assert front.verdict[-1] == f"{biased} findings below show evidence of bias in other questions."
    assert "other questions" not in " ".join(front_page(table, inputs, inputs.reading).verdict)


def test_a_gap_of_probe_words_is_told_with_the_groups_of_words_of_its_own_valence():
    gap, *shares = answer("a")
    gap |= {
        "metric": "probe_rate_gap",
        "definition": "by_valence",
        "suite": "trident",
        "event": "neutral",
        "value": 0.2,
    }
    rates = [
        share | {"metric": "probe_rate", "definition": "logit", "suite": "trident", "event": None, "probe": probe,
                 "value": value}
        for share, values in zip(shares, ((0.9, 0.3), (0.8, 0.1)), strict=True)
        for probe, value in zip(("thief", "citizen"), values, strict=True)
    ]  # fmt: skip
    table = frame([gap, *rates])
    row = table.filter(metric="probe_rate_gap").row(0, named=True)
    assert between(row, OF_METRIC["probe_rate_gap"], table) == "30% of Black faces, 10% of White faces"


def test_of_groups_that_are_worst_off_alike_the_number_is_told():
    rows = answer("a", groups={"Black": 0.5, "Indian": 0.5, "Asian": 0.5, "White": 0.2})
    table = frame(rows)
    told = between(table.filter(metric="max_skew").row(0, named=True), OF_METRIC["max_skew"], table)
    assert told == "50% each of Asian faces and 2 more groups, 20% of White faces"


def test_a_claim_about_few_people_says_how_few():
    inputs = synthetic_inputs()
    few = frame([row | ({"n": 7} if row["metric"] == "outcome_proportion" else {}) for row in answer("a")], answer("b"))
    told = [one.finding for one in front_page(few, inputs, inputs.reading).findings]
    first = next(finding for finding in told if finding.model == "a")
    assert "The smallest group has n = 7." in first.sentence
    assert str(first) == first.sentence


def test_where_nobody_knows_whether_a_model_sees_anything_the_verdict_says_so():
    inputs = synthetic_inputs()
    seen = answer("b")[0] | {
        "metric": "zero_shot_accuracy", "definition": "among_classes", "value": 0.9, "ci_low": 0.8, "ci_high": 1.0,
    }  # fmt: skip
    table = frame(answer("a"), [*answer("b"), seen])
    [doubt] = [line for line in front_page(table, inputs, inputs.reading).verdict if "was not checked" in line]
    assert doubt.startswith("Whether a can recognise anyone on fairface") and "called `gender`" in doubt
    checked = frame(answer("b"), [seen])
    assert not any("was not checked" in line for line in front_page(checked, inputs, inputs.reading).verdict)


def test_one_pole_that_holds_of_the_other_too_is_told_with_it():
    base = answer("a")[0] | {
        "metric": "sc_weat_effect", "definition": "against_rest", "suite": "perception", "group": "White",
        "reference_group": OTHERS, "n": 200,
    }  # fmt: skip
    rows = [
        base | {"event": f"belief_{pole}", "value": value} for pole, value in (("negative", 1.4), ("positive", 1.2))
    ]
    row = frame(rows).filter(event="belief_negative").row(0, named=True)
    table = frame(rows)
    said = _other_pole(row, table, Reading())
    assert said == " The same holds for positive words of belief (1.2 SD): read both together."
    assert "points the same way, without evidence (1.2 SD)" in _other_pole(row, table.with_columns(q=0.4), Reading())
    assert _other_pole(row, table.filter(event="belief_negative"), Reading()) == ""


def test_the_section_of_a_model_holds_a_finding_that_no_cell_of_the_scorecard_tells():
    suites = {"crime": "crime", "agency": "negative_agency", "communion": "negative_communion"}
    strong = [
        answer("a", suite=suite, event=event, attribute=attribute, value=3.0, low=2.0, high=4.0, groups=groups)
        for suite, event in suites.items()
        for attribute, groups in (("race", None), ("gender", {"man": 0.5, "woman": 0.2}))
    ]
    table = frame(*strong, answer("a", dataset="visitors", value=0.9, low=0.5, high=1.2))
    inputs = replace(synthetic_inputs(), planted_truth=None, effects=None)
    [one] = front_page(table, inputs, Reading()).models
    assert [finding.dataset for finding in one.findings] == ["fairface"] * 3 + ["visitors"]
