"""Every study: valid, named so that its paper's numbers are found, and planned where its data is not."""

from pathlib import Path

import pytest
from published_designs import published_designs
from typer.testing import CliRunner

from assets.asked_cells import cell_suites, require_mitigations
from orchestration.command_line import app
from plumbline.catalog.published import published_values
from plumbline.catalog.studies import published_sizes, recognise, study_checkpoints
from plumbline.commands import terminal
from plumbline.config.file import read_audit
from plumbline.encoders.families import require_suites
from plumbline.encoders.plan import architecture_summary
from resources.checkout import PROJECT
from resources.workspace import Workspace

FOLDER = PROJECT / "studies"
PAPERS = {
    "trident": "tripro",
    "data-matters-most": "data_matters_most",
    "social-perception": "social_perception",
    "lvlm-counterfactuals": "lvlm_counterfactuals",
    "lvlm-counterfactuals-gpt-4o": "lvlm_counterfactuals",
}
# Numbers of several suites, and of generated texts.
_NO_SUITE = {"outcomes", "generation"}
# On images: read, embedded; pairs of BridgeTower; answers. By hand from the papers' sizes.
TOTALS = {
    # Five readings of images for four datasets, and four of them embed: OWLv2's two wordings share one.
    "trident": (4 * (202_599 + 23_708 + 97_698 + 11_000), 202_599 * 17 + 23_708 * 45 + 97_698 * 51 + 11_000 * 60, 0),
    # OpenCLIP's mitigations are trained on LAION's and COCO's pairs; CLIP's one is judged by 5,000 images of COCO.
    "data-matters-most": (7 * (97_698 + 4_934 + 19) + 4 * (86_744 + 123_287) + 3 * 5_000, 0, 0),
    "social-perception": (97_698 + 23_708 + 19_800, 0, 0),
    # Table 8 counts M1 with Characteristics on physical-gender images twice; then four language models.
    "lvlm-counterfactuals": (
        0, 0, 57_116_970 - 50_520 * 3 * 5 + 4 * 170_832 * 3,
    ),
    "lvlm-counterfactuals-gpt-4o": (0, 0, 390_000),
}  # fmt: skip
names = pytest.mark.parametrize("name", PAPERS)


def study(name):
    return read_audit(FOLDER / f"{name}.yaml")


def addresses(audit):
    lvlms = (entry.address or entry.endpoint.model for entry in audit.lvlms.values())
    return {*(entry.address for entry in audit.encoders.values()), *lvlms}


def test_there_is_a_study_for_every_paper_whose_numbers_are_known_and_each_is_tested():
    # Printed counts have tests of their own: test_counts_study.py.
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {*PAPERS, "data-matters-most-counts"}
    assert set(PAPERS.values()) == set(published_values()["paper"])
    assert all(f"{name}.yaml" in (FOLDER / "README.md").read_text("utf-8") for name in PAPERS)


@names
def test_a_study_is_whole_in_itself_and_asks_what_its_models_can_answer(name, tmp_path):
    audit, workspace = study(name), Workspace(FOLDER / f"{name}.yaml", tmp_path)
    assert audit.cells or audit.designs
    for dataset, encoder in audit.cells:
        entry = audit.encoders[encoder]
        family = architecture_summary(
            encoder, entry.address, workspace.checkpoint_folder(entry.address), family=entry.family
        ).family
        require_suites(family, cell_suites(workspace, dataset, encoder, family=family))
        require_mitigations(workspace, dataset, encoder, family=family)
    assert {entry.reader for entry in audit.datasets.values()} <= set(published_sizes())
    # An id that nothing is asked of is a slip.
    assert set(audit.used_datasets) == set(audit.datasets)
    assert {e for _, e in audit.cells} | {audit.labeller} - {None} == set(audit.encoders)
    assert bool(audit.cells) == bool(audit.encoders), "generative models need no encoder"
    assert {model for model, _ in audit.designs} == set(audit.lvlms)
    # A paper that took its labels as they are sets no limit to their errors; shares are those of the published data.
    assert audit.thresholds.label_error == (1 if audit.cells else 0.15)
    of_people = (name for name, each in audit.declarations.items() if "gender" in each.filled or each.base_attribute)
    assert all(audit.datasets[name].balance for name in of_people if name in audit.audited_datasets)
    assert not any(key.endswith("_gender") for entry in audit.datasets.values() for key in entry.balance)
    assert not [entry.root for entry in audit.datasets.values() if not entry.root.startswith("/data/")]


@pytest.mark.parametrize("paper", sorted(set(PAPERS.values())))
def test_the_numbers_of_a_paper_find_their_models_datasets_suites_and_mitigations(paper):
    audits = [study(name) for name in PAPERS if PAPERS[name] == paper]
    printed = published_values().filter(paper=paper)
    run = {found.id for audit in audits for address in addresses(audit) if (found := recognise(address))}
    of_paper = {one.id for one in study_checkpoints().values() if paper in one.studies}
    labellers = {recognise(audit.encoders[audit.labeller].address).id for audit in audits if audit.labeller}
    assert of_paper <= run <= of_paper | labellers
    assert set(printed["checkpoint"].drop_nulls()) <= of_paper
    readers = {entry.reader for audit in audits for entry in audit.datasets.values()}
    assert set(printed["dataset"]) - {"text"} <= readers
    suites = {suite for audit in audits for asked in audit.cells.values() for suite in asked}
    assert set(printed["suite"].drop_nulls()) - _NO_SUITE <= suites
    tried = {name for audit in audits for names in audit.mitigated.values() for name in names}
    assert set(printed["condition"]) - {"before"} <= tried


@names
def test_factors_are_those_of_the_checkpoint(name):
    for encoder, entry in study(name).encoders.items():
        if entry.factors:
            assert entry.factors == recognise(entry.address).factors, encoder


def test_the_open_models_are_asked_all_designs_of_the_study():
    (asked,) = {
        tuple(audit_entry for (m, _), entries in study("lvlm-counterfactuals").designs.items() if m == model
              for audit_entry in entries)
        for model in published_designs().analyses[0].models
    }  # fmt: skip
    designs = {(entry.prompt_ids, entry.instructions, len(entry.seeds), entry.subsets) for entry in asked}
    wanted = {
        (one.prompts, one.instructions, one.seeds, ("physical_gender",) if len(one.images) == 1
         and "pata" not in one.images else "all")
        for one in published_designs().analyses
    }  # fmt: skip
    assert designs == wanted


def test_gpt_4o_is_asked_about_the_published_sample():
    audit, sampled = study("lvlm-counterfactuals-gpt-4o"), published_designs().sampled
    asked = {entry.subsets[0]: entry for entry in audit.generate}
    assert {name: entry.occupations for name, entry in asked.items()} == {
        name: subset.occupations for name, subset in sampled.subsets.items()
    }
    for name, entry in asked.items():
        assert entry.sets_per_occupation == sampled.subsets[name].sets_per_occupation
        assert (entry.prompt_ids, len(entry.seeds)) == (sampled.prompts, sampled.seeds)
    assert audit.generation.decoding.max_new_tokens == sampled.max_new_tokens
    assert audit.lvlms["gpt-4o"].endpoint.model == sampled.version
    assert audit.language.judge.model == published_designs().judge_version


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Return what `plumbline plan` prints of a study, on a machine with neither data nor weights nor keys."""
    for variable in ("OPENAI_API_KEY", "PERSPECTIVE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PLUMBLINE_HOME", str(tmp_path / "home"))
    # The command sets these; the next test should not find them.
    monkeypatch.setenv("PLUMBLINE_AUDIT", "audit.yaml")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(terminal.console, "width", 200)

    def run(name, *options):
        ran = CliRunner().invoke(app, ["plan", "--config", str(FOLDER / f"{name}.yaml"), *options])
        assert ran.exit_code == 0, ran.output or ran.exception
        assert not (tmp_path / "home").exists(), "nothing is written"
        return ran.output

    return run


@pytest.mark.skipif(Path("/data").exists(), reason="the studies' data may be on this machine")
@names
def test_a_plan_says_rows_time_and_disk_without_data_or_weights(name, plan):
    told = " ".join(plan(name).split())
    images, pairs, answers = TOTALS[name]
    assert (f"{images:,} images to embed" in told) == bool(images)
    assert (f"{pairs:,} pairs to score" in told) == bool(pairs)
    assert ("at 200 images/s (assumed; --images-per-second)" in told) == bool(images)
    assert ("of disk for embeddings, logits and records" in told) == bool(images)
    for dataset, entry in study(name).datasets.items():
        size = published_sizes()[entry.reader]
        assert f"{dataset}: not on this disk; {size.images:,} images as published" in told
    assert ("answers and scores" in told) == bool(answers)
    if answers:
        assert f"{answers:,} answers, about" in told and "without the images" not in told
        assert "at 1,000 new tokens/s (assumed; --tokens-per-second)" in told


@pytest.mark.skipif(Path("/data").exists(), reason="the studies' data may be on this machine")
def test_a_rate_that_is_given_is_used_and_said(plan):
    told = " ".join(plan("social-perception", "--images-per-second", "1000").split())
    assert "141,206 images to embed: 2.4 min on one device at 1,000 images/s (given)" in told
    told = " ".join(plan("lvlm-counterfactuals-gpt-4o", "--tokens-per-second", "49140").split())
    assert (
        "17.1 min" not in told
        and "16.7 min one model after the other" in told
        and "49,140 new tokens/s (given)" in told
    )
