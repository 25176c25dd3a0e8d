"""How far an audit file reproduces the papers, and that numbers of another protocol are shown and not judged."""

import json
from collections import Counter

import polars as pl
import pytest

from assets.model_addresses import model_addresses
from plumbline.catalog.published import differences, published_values
from plumbline.catalog.schema import metric_frame
from plumbline.config.file import read_audit
from plumbline.config.reproduction import REPRODUCTION_SCHEMA, reproduction, run_of
from plumbline.report.comparison import compare_with_published
from resources.checkout import PROJECT

DMM = "data_matters_most"


def run(study, **changes):
    audit = read_audit(PROJECT / "studies" / f"{study}.yaml").model_copy(update=changes)
    return run_of(audit, model_addresses(audit))


def table_of(tables, name, paper=DMM):
    return tables.filter(paper=paper, table=name).row(0, named=True)


def without_pairs():
    """Return the mitigations of the study with captions made of labels."""
    known = run("data-matters-most").audit.mitigations.items()
    return {name: each.model_copy(update={"pairs": None} if each.pair_datasets else {}) for name, each in known}


def test_each_of_the_280_cells_of_table_3_has_a_run_with_the_papers_protocol_or_another():
    study = run("data-matters-most")
    tables = reproduction(study)
    assert dict(tables.schema) == {name: kind() for name, kind in REPRODUCTION_SCHEMA.items()}
    cells = published_values().filter(paper=DMM, table="3").to_dicts()
    states = [
        {
            bool(differences(json.loads(cell["protocol"]), study.protocol(model, dataset, cell)))
            for model in study.models[cell["checkpoint"]]
            for dataset in [name for name, reader in study.datasets.items() if reader == cell["dataset"]]
            if study.why_not(model, dataset, cell) is None
        }
        for cell in cells
    ]
    assert len(cells) == 280 and all(states)
    # Prompt Array on LAION's pairs and SANER on COCO's captions as trained; the pairs of Bias Prompts are not printed.
    assert states.count({False}) == 160 and states.count({True}) == 120
    three, suspect = table_of(tables, "3"), Counter(cell["status"] == "suspect" for cell in cells)[True]
    assert (three["cells"], three["reproduced"], three["other_protocol"], three["cannot"]) == (280, 150, 106, suspect)
    assert "other protocol: artefacts Plumbline's in place of the authors' (106)" in three["why"]
    assert table_of(tables, "1")["reproduced"] == 120 and table_of(tables, "1")["why"] is None


def test_the_authors_pairs_of_prompts_are_their_protocol():
    known = run("data-matters-most").audit.mitigations
    theirs = known["bias_prompts"].model_copy(update={"pairs": (("a male doctor", "a female doctor"),)})
    three = table_of(reproduction(run("data-matters-most", mitigations={**known, "bias_prompts": theirs})), "3")
    assert (three["reproduced"], three["other_protocol"]) == (256, 0)


def test_every_table_of_a_paper_is_named_also_one_that_prints_no_result():
    tables = reproduction(run("lvlm-counterfactuals")).filter(paper="lvlm_counterfactuals")
    numbers = [*map(str, range(1, 31)), "physical-race ratings", "text"]
    assert tables["table"].to_list() == numbers
    assert tables.filter(table="6").select("cells", "why").row(0) == (0, "asked as printed: the prompts `main`")


def test_trained_on_captions_made_of_labels_is_another_protocol():
    three = table_of(reproduction(run("data-matters-most", mitigations=without_pairs())), "3")
    assert three["reproduced"] == 0
    assert "pairs labels in place of laion" in three["why"] and "pairs labels in place of coco" in three["why"]


def test_what_cannot_be_reproduced_says_why():
    tables = reproduction(run("lvlm-counterfactuals"))
    assert table_of(tables, "1", "lvlm_counterfactuals")["why"].startswith("no scores of the kind: perspective (150)")
    assert "no judge of stereotypes (60)" in table_of(tables, "21", "lvlm_counterfactuals")["why"]
    assert table_of(tables, "30", "lvlm_counterfactuals")["reproduced"] == 288
    assert (tables["cells"] == tables["reproduced"] + tables["other_protocol"] + tables["cannot"]).all()
    # Nothing of a paper: its tables are not listed.
    assert set(reproduction(run("trident"))["paper"]) == {"tripro", "social_perception"}


def test_a_smaller_generation_is_another_protocol():
    study = run("lvlm-counterfactuals").audit
    one_seed = tuple(entry.model_copy(update={"seeds": (0, 1)}) for entry in study.generate)
    tables = reproduction(run("lvlm-counterfactuals", generate=one_seed))
    thirty = table_of(tables, "30", "lvlm_counterfactuals")
    assert (thirty["reproduced"], thirty["other_protocol"]) == (0, 288)
    assert "seeds 2 in place of 1 (288)" in thirty["why"]


@pytest.mark.parametrize(
    ("published", "of_run", "told"),
    [
        ({}, {"epochs": 8}, None),
        ({"epochs": 3}, {"epochs": 3, "width": 7}, None),
        ({"epochs": 3, "pairs": "laion"}, {"epochs": 8}, "epochs 8 in place of 3"),
        ({"epochs": 3, "pairs": "laion"}, {"epochs": 8, "pairs": "labels"},
         "epochs 8 in place of 3, pairs labels in place of laion"),
    ],
)  # fmt: skip
def test_what_differs_is_said(published, of_run, told):
    assert differences(published, of_run) == told


def test_a_number_of_another_protocol_is_shown_and_not_judged():
    key = {
        "metric": "max_skew", "definition": "mean_over_pairs", "model": "openclip-b32-2b", "dataset": "fairface",
        "suite": "crime", "event": "crime", "attribute": "race", "statistic": "estimate",
        "value": 1.5, "ci_low": 1.4, "ci_high": 1.6, "n": 10954,
    }  # fmt: skip
    rows = metric_frame([{**key, "condition": name} for name in ("before", "prompt_array_race", "prompt_array_gender")])
    same = run("data-matters-most", mitigations=without_pairs())
    compared = compare_with_published(
        rows, encoders=model_addresses(same.audit), datasets=same.datasets, protocol_of=same.protocol
    )
    # Trained for race, it stands beside the columns of race alone.
    by_condition = {row["condition"]: row for row in compared.iter_rows(named=True)}
    assert set(by_condition) == {"before", "prompt_array_race"}
    other = by_condition["prompt_array_race"]
    assert (other["published"], other["measured"], other["within"], other["difference"]) == (1.51, 1.5, None, None)
    assert other["other_protocol"] == "pairs labels in place of laion"
    assert other["note"].startswith("other protocol: pairs labels")
    assert by_condition["before"]["within"] is not None and by_condition["before"]["other_protocol"] is None
    unknown = compare_with_published(rows, encoders=model_addresses(same.audit), datasets=same.datasets)
    assert unknown.filter(pl.col("condition") != "before")["within"].null_count() == 0
