"""The command of the installed package, as somebody meets it who has a folder of people, a table and a checkpoint."""

import csv
import os

import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from documentation.repository_pages import PROJECT
from orchestration import audit_commands
from orchestration.command_line import app as pipeline
from plumbline.commands.audit_files import encoder_ids
from plumbline.commands.main import app
from plumbline.config.file import read_audit
from plumbline.errors import ConfigError, PlumblineError

CHECKPOINT = PROJECT / "plumbline/world/checkpoints/small-bazaar-3k"
PEOPLE = 30


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_init_writes_a_file_that_check_accepts(here):
    assert run("init", "staff", "--model", CHECKPOINT).exit_code == 0
    column_map = read_audit(here / "audit.yaml").datasets["staff"].map
    assert column_map.values == {"gender": {"F": "woman", "M": "man", "X": "X"}}, "the names that prompts have"
    assert (column_map.index, column_map.path, column_map.images) == ("people.csv", "photo", "photos")
    assert column_map.columns == {"gender": "sex", "team": "team"}, "a badge is no group of people"
    checked = run("check")
    assert checked.exit_code == 0 and "Nothing stands against this audit." in checked.stdout
    assert f"staff: {PEOPLE} images listed, {PEOPLE} looked at" in checked.stdout
    with pytest.raises(ConfigError, match="there is an audit file already"):
        run("init", "staff")
    with pytest.raises(ConfigError, match="there is no such checkpoint"):
        run("init", "staff", "--model", here / "nowhere", "--to", "other.yaml")


def test_no_name_of_a_table_becomes_a_key_of_the_audit_file(here):
    names = ["photo", "sex", "remarks\nmetrics:\n  helpful: {function: 'helper:score'}\n# more", "a\x1b[2J\u2028b: c"]
    with (here / "staff" / "people.csv").open("w", newline="") as file:
        rows = [[f"{i}.jpg", "MF"[i % 2], f"r{i}", f"s{i}"] for i in range(PEOPLE)]
        csv.writer(file).writerows([names, *rows])
    run("init", "staff", "--model", CHECKPOINT)
    written = (here / "audit.yaml").read_text()
    assert set(yaml.safe_load(written)) == {"datasets", "encoders", "audit"} and "\x1b" not in written
    (here / "audit.yaml").unlink()
    (here / "staff" / "photos").rename(here / "elsewhere")  # no column holds paths
    run("init", "staff", "--model", CHECKPOINT)
    assert "metrics" not in yaml.safe_load((here / "audit.yaml").read_text())


def test_init_writes_no_value_of_few_people_and_an_unusable_model_is_told_whole(here):
    run("init", "staff", "--model", CHECKPOINT)
    written = (here / "audit.yaml").read_text()
    assert "not taken: badge (30 values)" in written and "b-17" not in written
    assert all(f"{sex} 10" in written for sex in "FMX")
    (here / "half").mkdir()
    (here / "half" / "config.json").write_text('{"model_type": "clip"}')
    options = ["--model", "half", "--images", "staff/photos", "--labels", "staff/people.csv", "--suite", "crime"]
    with pytest.raises(ConfigError, match=r"can be audited\n  - half: [\s\S]*      expected: "):
        run("audit", *options)


def test_what_init_cannot_know_is_marked_and_check_says_what_to_fill_in(here):
    (here / "staff" / "photos").rename(here / "elsewhere")
    run("init", "staff")
    assert (here / "audit.yaml").read_text().count("FILL") == 2
    checked = run("check")
    assert checked.exit_code == 2
    for said in (
        "the table lacks a mapped column: `FILL IN`",
        "found:    photo, sex, team, badge",
        "encoder `mine` is not on this disk",
        "2 reason(s) why this audit would fail.",
    ):
        assert said in checked.stdout


@pytest.mark.parametrize(("below", "found"), [("", "photo, sex"), ("1.jpg,M,\n2.jpg,F,\n", "line 2: ")])
def test_a_table_without_rows_is_refused_by_name(here, below, found):
    table = here / "staff" / "people.csv"
    table.write_text("photo,sex\n" + below)
    for command in (("init", "staff"), ("audit", "--model", CHECKPOINT, "--images", "staff/photos", "--labels", table)):
        with pytest.raises(PlumblineError, match="the table has no rows") as refused:
            run(*command)
        assert refused.value.where == table and found in refused.value.found, refused.value
        assert not (here / "audit.yaml").exists()


def test_a_table_whose_columns_are_separated_by_semicolons_is_refused_with_the_remedy(here):
    table = here / "staff" / "people.csv"
    table.write_text(table.read_text().replace(",", ";"))
    with pytest.raises(PlumblineError, match="the table has one column") as refused:
        run("init", "staff")
    assert "commas between its columns" in str(refused.value) and refused.value.where == table


def test_options_stand_for_an_audit_file_and_give_table_report_and_scorecard(here):
    options = ["--images", "staff/photos", "--labels", "staff/people.csv", "--map", "gender=sex", "--suite", "crime"]
    done = run("audit", "--model", CHECKPOINT, *options)
    assert done.exit_code == 0, done.stdout
    home = here / ".plumbline"
    written = yaml.safe_load((home / "audit.yaml").read_text())
    assert written["datasets"]["photos"]["root"] == str(here / "staff") and written["audit"] == [{"suites": ["crime"]}]
    assert written["datasets"]["photos"]["map"] == {
        "index": "people.csv", "path": "photo", "images": "photos", "columns": {"gender": "sex"},
    }  # fmt: skip
    table = pl.read_parquet(home / "metric_table.parquet")
    rates = table.filter(metric="outcome_proportion", attribute="gender")
    assert set(rates["group"]) == {"M", "F", "X"} and set(rates["n"]) == {PEOPLE // 3}
    assert (home / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert "Every cell: cells.csv" in run("scorecard", "--csv", "cells.csv").stdout and (here / "cells.csv").is_file()
    assert {path.name for path in here.iterdir()} == {"staff", ".plumbline", "cells.csv"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--images", "staff"], r"no model is named\n  where:    --model"),
        (["--model", "m"], "no images are named"),
        (["--model", "m", "--images", "staf"], "the folder of images is not there"),
        (["--model", "m", "--images", "staff", "--map", "gender=sexx"], r"--map[\s\S]*sexx; did you mean `sex`"),
        (["--model", "m", "--images", "staff", "--map", "gender"], "ATTRIBUTE=COLUMN"),
        (["--model", "m", "--dataset", "faces=/data"], r"this names no dataset[\s\S]*READER=FOLDER"),
        (["--model", "m", "--images", "staff", "--suite", "crimes"], r"crimes; did you mean `crime`"),
        (["--model", "m", "--config", "audit.yaml"], "either `--config FILE`"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_with_their_name(here, options, said):
    with pytest.raises(ConfigError, match=said):
        run("audit", *options)


def test_an_audit_that_is_bound_to_fail_stops_before_it_embeds_in_the_words_of_check(here):
    run("init", "staff", "--model", CHECKPOINT)
    text = (here / "audit.yaml").read_text()
    (here / "audit.yaml").write_text(text.replace("    # balance: {gender: [0.40", "    balance: {gender: [0.40"))
    said = "33.3% of the images are `man`; `datasets.staff.balance.gender` asks for 40% to 60%"
    assert said in run("check").stdout
    with pytest.raises(ConfigError, match="bound to fail: nothing was embedded") as refused:
        run("audit")
    assert said in str(refused.value)
    assert not (here / ".plumbline" / "embeddings").exists()


@pytest.mark.parametrize(
    ("columns", "method", "asks", "said", "code"),
    [
        ("sex", "saner", {"attribute": "gender"}, "will not be tried: no row is of a training split", 0),
        ("sex", "logit_adjustment", {}, "has nothing to be fitted on", 2),
        ("team", "logit_adjustment", {}, "fewer than two images carry the label of any demographic candidate", 0),
        ("sex", "bias_prompts", {}, "nothing is wrong with its files", 0),
    ],
)
def test_check_says_of_a_named_mitigation_that_it_cannot_be_tried(here, columns, method, asks, said, code):
    run("init", "staff", "--model", CHECKPOINT)
    content = yaml.safe_load((here / "audit.yaml").read_text())
    of_map = content["datasets"]["staff"]["map"]
    of_map["columns"] = {"gender": "sex"} | ({"race": "team"} if columns == "team" else {})
    content["mitigations"] = {"mine": {"method": method} | asks}
    content["audit"] = [{"suites": ["crime"], "mitigations": ["mine"]}]
    (here / "audit.yaml").write_text(yaml.safe_dump(content))
    checked = run("check")
    told = " ".join(checked.stdout.split())
    assert checked.exit_code == code and said in told, checked.stdout
    assert ("Nothing stands against this audit." in told) == (code == 0)


def test_check_says_that_an_entry_asks_about_no_image(here):
    run("init", "staff", "--model", CHECKPOINT)
    content = yaml.safe_load((here / "audit.yaml").read_text())
    content["lvlms"] = {"said": {"answers": {"files": ["said.jsonl"]}}}
    for subsets, code in ((["race_gender"], 2), ("all", 0)):
        content["generate"] = [{"datasets": ["staff"], "prompts": ["characteristics"], "subsets": subsets}]
        (here / "audit.yaml").write_text(yaml.safe_dump(content))
        checked = run("check")
        assert checked.exit_code == code, checked.stdout
        assert ("an entry of `generate` asks about no image of `staff`" in checked.stdout) == bool(code)


def test_what_only_images_tell_refuses_a_dataset_and_the_others_are_audited(here):
    """Too many broken files are found when they are read; another dataset, of the table alone refused, is not read."""
    run("init", "staff", "--model", CHECKPOINT)
    for person in range(4):
        (here / "staff" / "photos" / f"{person}.jpg").write_text("no image")
    with pytest.raises(ConfigError, match="nothing of this audit file can be audited") as refused:
        run("audit", "--config", "audit.yaml")
    for said in (
        "13.3% of the images are refused; `datasets.staff.quarantine_rate` or `thresholds.quarantine_rate` allows",
        "photos/0.jpg: the content is not an image (people.csv, line 2), found bytes",
        "photos/2.jpg: ",
        "(people.csv, line 4)",
        "; and 1 more",
    ):
        assert said in str(refused.value), said
    content = yaml.safe_load((here / "audit.yaml").read_text())
    content["datasets"]["faces"] = content["datasets"]["staff"] | {"quarantine_rate": 0.5}
    content["datasets"]["lopsided"] = content["datasets"]["faces"] | {"balance": {"team": [0.6, 0.7]}}
    content["audit"] = [{"suites": ["crime"]}]
    (here / "audit.yaml").write_text(yaml.safe_dump(content))
    done = run("audit")
    assert done.exit_code == 1, "a dataset is left out"
    table = pl.read_parquet(here / ".plumbline" / "metric_table.parquet")
    assert set(table["dataset"].drop_nulls()) == {"faces", "text"}, "text: a model's text space"
    assert "left out, mitigations (" in done.stdout and "will be refused: lopsided" in done.stdout
    page = (here / ".plumbline" / "report.html").read_text()
    assert "What was not tried, and why" in page and "the pipeline fits and judges them" in page
    assert "Without numbers: 2 pairs of a model and a dataset." in page


def test_a_metric_of_ones_own_is_computed_in_memory_and_a_broken_one_is_told(here):
    run("init", "staff", "--model", CHECKPOINT)
    (here / "near.py").write_text(
        "import numpy as np\n\n\ndef first(scores, event, codes, groups):\n"
        "    hit = event[scores.argmax(axis=1)]\n    sizes = np.bincount(codes, minlength=groups)\n"
        "    return np.divide(np.bincount(codes, hit, groups), sizes, out=np.full(groups, np.nan), where=sizes > 0)\n"
    )
    content = yaml.safe_load((here / "audit.yaml").read_text())
    content |= {
        "audit": [{"suites": ["crime"], "mitigations": []}],
        "statistics": {"resamples": 100, "permutations": 100},
    }
    content["metrics"] = {"first": {"function": "near:first", "resamples": 100}}
    (here / "audit.yaml").write_text(yaml.safe_dump(content))
    done = run("audit")
    assert done.exit_code == 0 and "left out" not in done.stdout
    table = pl.read_parquet(here / ".plumbline" / "metric_table.parquet")
    by = ["attribute", "group", "event"]
    own, same = table.filter(metric="own_metric"), table.filter(metric="outcome_proportion", definition="top1")
    joined = own.join(same, on=by)
    assert joined.height >= 5 and joined["value"].equals(joined["value_right"], null_equal=True)
    (here / "near.py").write_text("def first(scores):\n    return 1\n")
    checked = run("check")
    assert checked.exit_code == 2 and "its arguments" in checked.stdout
    with pytest.raises(PlumblineError, match="its arguments"):
        run("audit")


def test_check_counts_the_images_of_which_nothing_can_be_asked(here):
    run("init", "staff", "--model", CHECKPOINT)
    content = yaml.safe_load((here / "audit.yaml").read_text())
    content["lvlms"] = {"told": {"answers": {"files": ["answers.jsonl"]}}}
    content["generate"] = [{"datasets": ["staff"], "prompts": ["characteristics"], "seeds": [0]}]
    (here / "audit.yaml").write_text(yaml.safe_dump(content))
    (here / "answers.jsonl").write_text('{"image": "x", "prompt": "characteristics", "text": "kind"}\n')
    before = " ".join(run("check").stdout.split())
    assert "cannot be asked about" not in before
    assert "answers of generative models are compared by gender alone, not by team" in before
    table = here / "staff" / "people.csv"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    with table.open("w", newline="") as file:
        written = csv.DictWriter(file, rows[0])
        written.writeheader()
        written.writerows(row | {"sex": ""} if number < 2 else row for number, row in enumerate(rows))
    checked = run("check")
    told = " ".join(checked.stdout.split())
    assert checked.exit_code == 2 and "generative models cannot be asked about this dataset" in told
    assert f"of {PEOPLE} images {PEOPLE} without race and 2 without gender" in told


def test_a_suite_that_is_here_is_shown_by_its_name_and_another_name_is_told_what_there_is(here):
    shown = run("suite", "crime")
    assert shown.exit_code == 0 and "crime: outcomes, 21 prompts" in shown.stdout
    assert "a photo of a thief" in shown.stdout
    with pytest.raises(ConfigError, match=r"did you mean `crime`[\s\S]*or one of agency[\s\S]*--new"):
        run("suite", "crimes")


def test_checkpoints_of_one_name_have_ids_of_their_own():
    models = [
        "/runs/tiny/checkpoints/epoch_3.pt",
        "/runs/Wide/checkpoints/epoch_3.pt",
        "/a/clip",
        "/b/clip",
        "epoch_3.pt",
    ]
    assert list(encoder_ids(models)) == ["tiny-epoch_3", "wide-epoch_3", "clip", "clip-2", "epoch_3.pt"]
    assert list(encoder_ids(models).values()) == models


def test_workers_import_once_the_audit_file_is_final(here, monkeypatch):
    """The definitions that they import are of the audit file in force, which options write; another lies beside it."""
    run("init", "staff", "--model", CHECKPOINT)
    in_force = []

    def stop():
        in_force.append(os.environ["PLUMBLINE_AUDIT"])
        raise PlumblineError("seen")

    monkeypatch.setattr(audit_commands, "import_ahead", stop)
    for variable in ("HF_HUB_OFFLINE", "PLUMBLINE_FOLDER", "PLUMBLINE_AUDIT"):
        monkeypatch.setenv(variable, "")  # what the command sets goes with the test
        monkeypatch.delenv(variable)
    options = ["--model", CHECKPOINT, "--images", "staff/photos", "--labels", "staff/people.csv", "--suite", "crime"]
    with pytest.raises(PlumblineError, match="seen"):
        CliRunner().invoke(pipeline, ["audit", *map(str, options)], catch_exceptions=False)
    assert in_force == [str(here / ".plumbline" / "audit.yaml")]
