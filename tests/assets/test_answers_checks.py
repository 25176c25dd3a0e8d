"""The checks of answers: what they promise is what they ask, and what was found is said either way."""

import dagster as dg
import polars as pl
import pytest

from assets.answers_checks import ANSWER_CHECKS, ANSWER_CHECKS_TABLE, furthest
from assets.partitions import ANSWERS, answers_key
from plumbline.language.tokens import complete_sets
from resources.quality import Quality
from resources.workspace import Workspace

[COMPLETE] = [check for check in ANSWER_CHECKS if next(iter(check.check_keys)).name == "complete_sets"]
KEY = answers_key("model", "faces.race_gender")


@dg.asset(partitions_def=ANSWERS)
def generations() -> None: ...


def people(*, sets, incomplete):
    """Return who is pictured in so many sets of two, some of which lack one."""
    rows = [
        {"subset": "race_gender", "set_id": f"s{i}", "group": group, "set_groups": 2}
        for i in range(sets)
        for group in ("Black_man", "Black_woman")[: 1 if i < incomplete else 2]
    ]
    return pl.DataFrame(rows)


@pytest.mark.parametrize(("incomplete", "passed"), [(0, True), (1, True), (2, False)])
def test_complete_sets_says_how_many_may_be_incomplete_and_how_many_are(tmp_path, incomplete, passed):
    encoders = '{"e": {"address": "local-dir:e"}}'
    (tmp_path / "audit.yaml").write_text(f'{{"labeller": "e", "encoders": {encoders}, "datasets": {{}}, "audit": []}}')
    workspace = Workspace(audit_path=tmp_path / "audit.yaml", home=tmp_path / "home")
    workspace.lake.write_table("pictured_people", people(sets=20, incomplete=incomplete), partition="faces.race_gender")
    workspace.lake.write_table("generations", pl.DataFrame(), partition=str(KEY))
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        instance.add_dynamic_partitions("lvlm", ["model"])
        instance.add_dynamic_partitions("slice", ["faces.race_gender"])
        result = dg.materialize(
            [generations, COMPLETE],
            instance=instance,
            partition_key=KEY,
            resources={"workspace": workspace, "quality": Quality(workspace)},
        )
    [evaluation] = result.get_asset_check_evaluations()
    told = f"lowest: {1 - incomplete / 20:.4g} of subset race_gender, sets 20"
    assert (evaluation.passed, evaluation.description) == (passed, told)
    row = workspace.lake.read_table(ANSWER_CHECKS_TABLE, partition=f"{KEY}|generations.complete_sets")
    assert row["observed"].item() == told and row["passed"].item() == passed
    assert "at least 95% of the counterfactual sets" in row["expected"].item()


def test_sets_that_show_one_person_each_are_none_to_complete():
    """A folder whose `set_id` says which images show the same person compares nobody within a set."""
    of_persons = people(sets=3, incomplete=3).with_columns(set_groups=pl.lit(None, pl.Int64))
    assert furthest(complete_sets(of_persons), highest=False) == "there is nothing to look at"
    beside = pl.concat([of_persons.with_columns(subset=pl.lit("all")), people(sets=4, incomplete=1)])
    assert furthest(complete_sets(beside), highest=False) == "lowest: 0.75 of subset race_gender, sets 4"


def test_the_share_that_matters_is_told_and_no_text_of_an_endpoint():
    frame = pl.DataFrame({"source": ["![x](http://y)", "b"], "answers": [3, 5], "share": [0.2, 0.7]})
    assert furthest(frame, highest=True) == "highest: 0.7 of answers 5"
    assert furthest(frame, highest=False) == "lowest: 0.2 of answers 3"
    assert furthest(frame.clear(), highest=True) == "there is nothing to look at"
