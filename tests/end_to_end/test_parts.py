"""Audits of a part of the suites, and audits whose sources change afterwards."""

import shutil

import polars as pl
import pytest
import yaml
from homes import AUDIT, make_home

from plumbline.metrics.registry import METRICS
from plumbline.provenance.tracked_numbers import headline_metrics
from resources.checkout import PROJECT

MODEL = "small-control-3k"
UTKFACE = {"reader": "utkface", "root": "planted:utkface"}


def home_of(folder, **changes):
    small = {
        "datasets": {"utkface": UTKFACE},
        "encoders": {MODEL: AUDIT["encoders"][MODEL]},
        "statistics": {"resamples": 200, "permutations": 200},
    }
    return make_home(folder, **{**small, **changes})


PERCEPTION = {"sc_weat_effect", "markedness", "skew_at_k", "ndkl", "directional_bias", "valence_gap"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suites", "metrics"),
    [
        pytest.param(["crime"], {"max_skew"}, marks=pytest.mark.slow),
        pytest.param(["trident"], {"probe_rate_gap"}, marks=pytest.mark.slow),
        (["perception", "markedness", "templates"], PERCEPTION),
    ],
    ids=["crime", "trident", "social perception"],
)
def test_an_audit_of_some_suites_has_a_report(tmp_path, suites, metrics):
    home = home_of(tmp_path / "home", audit=[{"suites": suites}])
    code, output = home.run("audit")
    assert code == 0, output
    table = home.workspace.lake.read_table("metric_table")
    assert metrics <= set(table["metric"]) <= {*METRICS, "macro_accuracy_gain"}
    assert home.workspace.report.is_file()


def test_what_changed_since_is_no_longer_current(copied, tmp_path):
    assert "2 of 2 cells are current" in copied.run("status")[1]

    folder = tmp_path / "checkpoint"
    shutil.copytree(PROJECT / "plumbline/world/checkpoints" / MODEL, folder)
    content = yaml.safe_load(copied.workspace.audit_path.read_text())
    content["encoders"][MODEL] = {"address": f"local-dir:{folder}"}
    copied.workspace.audit_path.write_text(yaml.safe_dump(content))
    assert "2 of 2 cells are current" in copied.run("status")[1], "the same, wherever it is"

    config = folder / "open_clip_config.json"
    config.write_text(config.read_text() + " ")
    code, output = copied.run("status")
    assert code == 0 and "0 of 2 cells are current" in output
    assert "out of date: the checkpoint of small-control-3k" in output

    content["datasets"]["fairface"]["balance"] = {"race": [0.5, 0.6]}
    copied.workspace.audit_path.write_text(yaml.safe_dump(content))
    assert "refused, since checks have not passed" in copied.run("status")[1]


def test_every_headline_number_has_a_key_of_its_own(audited):
    home, _, _ = audited
    lake, partition = home.workspace.lake, "fairface|small-bazaar-3k"
    names = ("outcome_metrics", "trident_metrics", "mitigated_metrics")
    frame = pl.concat([lake.read_table(name, partition=partition) for name in names])
    headlines = headline_metrics(frame)
    after = headline_metrics(frame, "logit_adjustment")
    accuracy = frame.filter(
        (pl.col("metric") == "macro_accuracy")
        & pl.col("definition").is_in(["paper", "test_rows"])
        & pl.col("statistic").is_in(["estimate", "mean"])
        & (pl.col("suite") == "trident")
        & (pl.col("probe") == "person")
    )
    counted = dict(accuracy.group_by("condition").len().iter_rows())
    assert sum(key.startswith("macro_accuracy/") for key in headlines) == counted["before"]
    assert sum(key.startswith("macro_accuracy/") for key in after) == counted["logit_adjustment"] == 1
    assert {key for key in after if key.startswith("macro_accuracy/")} < set(headlines), "to be compared"
