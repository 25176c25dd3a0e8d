"""The metric, scorer and reader of the page keep their contracts and give what they promise; broken ones are told."""

import re
import sys

import numpy as np
import polars as pl
import pytest
import yaml
from PIL import Image

from assets.up_to_date import Present
from documentation.repository_pages import PROJECT
from plumbline import own_code
from plumbline.catalog.own_suites import starter
from plumbline.catalog.suites import load_suite
from plumbline.config.file import read_audit
from plumbline.datasets.own import OwnReader, require_reader
from plumbline.datasets.preview import preview
from plumbline.errors import ConfigError
from plumbline.metrics.cell import build_cell, text_products
from plumbline.metrics.family import MetricSettings
from plumbline.metrics.own import GAP, VALUE, OwnMetric, own_rows, require_metric
from plumbline.metrics.registry import metric_table
from plumbline.recording import recording
from plumbline.report.findings import findings
from plumbline.report.reading import Reading
from plumbline.report.scorecard import own_question, scorecard
from plumbline.scorers.own import OwnSettings, require_scorer
from resources.lvlms import scorer_version
from resources.workspace import Workspace

PAGE = (PROJECT / "docs" / "own-code.md").read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
ENTRIES = yaml.safe_load(re.search(r"```text\n(datasets:.*?)```", PAGE, re.DOTALL)[1])


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A folder with the files of the page and an audit file that names them."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_code, "_FOLDERS", {})
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    generator = np.random.default_rng(0)
    for i in range(24):
        path = tmp_path / "portraits" / ("men", "women")[i % 2] / f"{('bonn', 'ulm')[i % 4 // 2]}-{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
    content = ENTRIES | {
        "datasets": {"studio": ENTRIES["datasets"]["studio"] | {"root": str(tmp_path / "portraits")}},
        "encoders": {"one": {"address": "local-dir:somewhere"}},
        "audit": [{"suites": ["crime"]}],
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(content), "utf-8")
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def metric_of(folder):
    audit = read_audit(folder / "audit.yaml")
    entry = audit.metrics["top_two"]
    return OwnMetric("top_two", entry.function, own_code.code_digest(entry.function), entry.suites, entry.bounds, 200)


def test_the_three_of_the_page_keep_their_contracts(beside):
    require_metric(metric_of(beside))
    audit = read_audit(beside / "audit.yaml")
    require_scorer(audit.scorers["shouting"])
    scorer = audit.scorers["shouting"].load(project=beside, fetched=beside, placement=None)
    assert [one.scores for _, one in scorer.score(["quiet", "LOUD"])] == [{"toxicity": 0.0}, {"toxicity": 1.0}]
    assert audit.scorers["shouting"].content(project=beside, fetched=beside) == own_code.code_digest("shouting:score")
    reader = audit.datasets["studio"].open_reader()
    assert isinstance(reader, OwnReader) and reader.least_shown == 5
    require_reader(reader, beside / "portraits")
    seen = preview(reader, beside / "portraits", dataset="studio", balance={}, most_refused=0.05)
    assert {groups.attribute: groups.names for groups in seen.groups} == {
        "gender": ("man", "woman"), "town": ("Bonn", "Ulm"),
    }  # fmt: skip


def test_the_metric_reaches_table_findings_and_scorecard(beside):
    rng, suite, n = np.random.default_rng(1), load_suite("crime"), 400
    genders = rng.choice(["man", "woman"], n)
    labels = {"image_id": [f"{i:04}" for i in range(n)], "dataset": "d", "path": "p", "split": "all", "gender": genders}
    vectors, texts = rng.normal(size=(n, 8)).astype(np.float32), rng.normal(size=(len(suite.texts), 8))
    texts = texts.astype(np.float32)
    # Men lie closer to the first crime word.
    vectors[genders == "man"] += 2 * texts[suite.columns("crime")[0]]
    arrays = text_products(vectors, texts, [suite.id] * len(texts))
    cell = build_cell(
        model="m", dataset="d", records=pl.DataFrame(labels), arrays=arrays, texts=suite.texts, suites=[suite],
        filters={}, shared_space=True, scaled=False, logit_scale=1.0,
    )  # fmt: skip
    settings = MetricSettings(resamples=200, permutations=200)
    table = metric_table([own_rows(cell, [metric_of(beside)], settings=settings)], audit_id="a", permutations=200)
    shares = {row["group"]: row for row in table.filter(metric=VALUE, event="crime").iter_rows(named=True)}
    cosines = cell.logits["crime"].scores[:]
    two = np.isin(np.argsort(-cosines, axis=1)[:, :2], suite.columns("crime")).any(axis=1)
    for group, row in shares.items():
        assert row["value"] == pytest.approx(two[genders == group].mean()) and row["n"] == (genders == group).sum()
        assert row["ci_low"] < row["value"] < row["ci_high"] and row["definition"] == "top_two"
    gap = table.filter(metric=GAP, event="crime").row(0, named=True)
    assert gap["value"] == pytest.approx(shares["man"]["value"] - shares["woman"]["value"]) and gap["p"] < 0.02
    assert 0 < gap["ci_low"] <= gap["value"] <= gap["ci_high"]
    asked = Reading(own_questions=(own_question("top_two", "crime", "crime", "gender", "near misses"),))
    card = scorecard(table, asked).row(0, named=True)
    assert card["title"] == "Near misses by gender" and card["state"] == "evidence" and card["group"] == "man"
    assert any("top_two" in finding.short and finding.tone == "bias" for finding in findings(table, asked))


@pytest.mark.parametrize("within", [False, True])
def test_where_images_come_in_sets_the_gap_is_tested_by_sets(beside, within):
    """Persons differ, groups do not: a coin tossed for each person, or for each of the pictures of one."""
    suite, sets, each, worlds = load_suite("crime"), 60, 4, 40
    metric, settings = metric_of(beside), MetricSettings(resamples=100, permutations=100)
    rows = []
    for world in range(worlds):
        rng = np.random.default_rng(world)
        texts = rng.normal(size=(len(suite.texts), 8)).astype(np.float32)
        person = np.repeat(np.arange(sets), each)
        coin = rng.permutation(sets) % 2 if not within else None
        group = np.tile([0, 1], len(person) // 2) if coin is None else coin[person]
        vectors = (rng.normal(size=(sets, 8))[person] + 0.2 * rng.normal(size=(len(person), 8))).astype(np.float32)
        labels = {
            "image_id": [f"{i:04}" for i in range(len(person))], "dataset": "d", "path": "p", "split": "all",
            "gender": np.array(["man", "woman"])[group], "set_id": [f"{i}" for i in person],
        }  # fmt: skip
        cell = build_cell(
            model="m", dataset="d", records=pl.DataFrame(labels), texts=suite.texts, suites=[suite],
            arrays=text_products(vectors, texts, [suite.id] * len(texts)),
            filters={}, shared_space=True, scaled=False, logit_scale=1.0,
        )  # fmt: skip
        rows.append(own_rows(cell, [metric], settings=settings).filter(metric=GAP, event="crime").row(0, named=True))
    assert all(row["ci_low"] <= row["value"] <= row["ci_high"] for row in rows)
    assert all((row["ci_low"] == 0) == (row["p"] > 0.05) for row in rows), (
        "the interval ends at 0 where p is no evidence"
    )
    assert 0 <= sum(row["p"] <= 0.05 for row in rows) <= 5, "of 40 worlds two are expected"
    assert np.median([row["p"] for row in rows]) > 0.3


def test_an_edit_is_another_version_and_a_comment_is_none(beside):
    reference = "near_misses:top_two"
    first, path = metric_of(beside).digest, beside / "near_misses.py"
    values = own_code.own_code(reference).thing(np.eye(3), np.array([True, False, False]), np.array([0, 0, 1]), 2)
    path.write_text('"""Other words."""\n# more\n' + FILES["near_misses.py"].partition("\n")[2], "utf-8")
    assert own_code.code_digest(reference) == first
    path.write_text(FILES["near_misses.py"].replace("[:, :2]", "[:, :1]"), "utf-8")
    assert own_code.code_digest(reference) != first
    edited = own_code.own_code(reference).thing(np.eye(3), np.array([True, False, False]), np.array([0, 0, 1]), 2)
    assert values.tolist() == [1.0, 1.0] and edited.tolist() == [0.5, 0.0]
    # What it imports beside it counts too, others beside it do not.
    (beside / "helper.py").write_text("K = 2\n", "utf-8")
    assert own_code.code_digest(reference) != (second := own_code.code_digest("shouting:score"))
    path.write_text("from helper import K\n" + FILES["near_misses.py"], "utf-8")
    third = own_code.code_digest(reference)
    (beside / "helper.py").write_text("K = 3\n", "utf-8")
    assert own_code.code_digest(reference) != third and own_code.code_digest("shouting:score") == second


BROKEN_METRICS = {
    "def top_two(scores): return 1": ("its arguments", r"\(scores\)"),
    "top_two = 3": ("not a function", "int"),
    "def top_two(s, e, c, g): return 1.0": ("what it returns", "an array of 3 floats"),
    "def top_two(s, e, c, g): return [2.0, 2.0, 2.0]": ("out of its `bounds`", r"0 \.\. 1"),
    "def top_two(s, e, c, g): return [0.1, 0.2, 0.0]": ("without images", "nan"),
    "def top_two(s, e, c, g): return [float('nan')] * g": ("no value for a group with images", "two numbers"),
    "def top_two(s, e, c, g): return [0.1, 0.2, float('nan')]": ("change places", r"0\.2"),
    "def top_two(s, e, c, g): return [abs(s[c == i][:1].sum()) % 1 or float('nan') for i in range(g)]": (
        "order of the images", "expected",
    ),
    "def top_two(s, e, c, g): return 1 / 0": ("your own code fails", r"near_misses.py, line 1\n.*ZeroDivisionError"),
    "def other(): pass": ("has no `top_two`", "other"),
    "import no_such_thing": ("import of this module fails", r"near_misses.py, line 1\n.*no_such_thing"),
    "def top_two(:": ("this is not Python", "line 1"),
}  # fmt: skip


@pytest.mark.parametrize("source", BROKEN_METRICS)
def test_a_metric_that_breaks_its_contract_is_told(source, beside):
    (beside / "near_misses.py").write_text(source + "\n", "utf-8")
    what, found = BROKEN_METRICS[source]
    with pytest.raises(ConfigError, match=what) as caught:
        require_metric(metric_of(beside))
    assert re.search(found, str(caught.value)) and "near_misses.py" in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def score(texts): return [0.5]", "1 of 3"),
        ("def score(texts): return [{'toxicity': 2.0} for t in texts]", "from 0 to 1"),
        ("def score(texts): return [{'insult': 0.2} for t in texts]", "a mapping with toxicity"),
        ("def score(texts): return [{'toxicity': len(texts) / 10} for t in texts]", "depends on the texts beside it"),
        ("score = 'x'", "not a function"),
    ],
)
def test_a_scorer_that_breaks_its_contract_is_told(source, said, beside):
    (beside / "shouting.py").write_text(source + "\n", "utf-8")
    read_audit(beside / "audit.yaml")
    with pytest.raises(ConfigError, match=re.escape(said)):
        require_scorer(OwnSettings(kind="own", function="shouting:score"))


@pytest.mark.parametrize(
    ("found", "put", "said"),
    [
        ("class Studio(FolderIndexed)", "class Studio", "methods are missing"),
        ("    declaration = Declaration(", "    declared = Declaration(", "its declaration"),
        ('        attributes=("town",),\n', "", "columns that nobody knows"),
        ('"town": file.partition', '"city": file.partition', "without town"),
        ("return Entry(path, None,", "return (path, None,", "Entry(path, split, raw) or Refusal"),
    ],
)
def test_a_reader_that_breaks_its_contract_is_told(found, put, said, beside):
    assert found in FILES["studio.py"]
    (beside / "studio.py").write_text(FILES["studio.py"].replace(found, put), "utf-8")
    with pytest.raises(ConfigError, match=re.escape(said)):
        require_reader(read_audit(beside / "audit.yaml").datasets["studio"].open_reader(), beside / "portraits")


def test_only_what_the_audit_file_names_is_found_beside_it_or_installed(beside):
    read_audit(beside / "audit.yaml")
    (beside / "hidden.py").write_text("raise SystemExit\n", "utf-8")
    with pytest.raises(ConfigError, match="not named by the audit file"):
        own_code.own_code("hidden:thing")
    own_code.admit(["yaml:safe_load", "json:dumps", "nowhere:thing"], beside)
    assert own_code.own_code("yaml:safe_load").thing("[1]") == [1]
    with pytest.raises(ConfigError, match="there is no such module"):
        own_code.own_code("nowhere:thing")
    (beside / "json.py").write_text("dumps = str\n", "utf-8")
    with pytest.raises(ConfigError, match="one beside the audit file, and one that is installed"):
        own_code.own_code("json:dumps")


def test_an_edit_is_seen_by_what_read_it_and_by_nothing_else(beside):
    """As words of the suites that are here: what was read is looked up again, and only that."""
    (beside / "jobs.yaml").write_text(starter("outcomes", "jobs"), "utf-8")
    audit = yaml.safe_load((beside / "audit.yaml").read_text("utf-8"))
    audit["audit"] = [{"suites": ["crime", "./jobs.yaml"]}]
    (beside / "audit.yaml").write_text(yaml.safe_dump(audit), "utf-8")
    workspace = Workspace(audit_path=beside / "audit.yaml", home=beside / "home")
    assert workspace.audit.metrics and workspace.own_suites
    with recording() as reads:
        for suite in ("crime", "jobs"):
            workspace.suite(suite)
        for reference in ("near_misses:top_two", "studio:Studio"):
            workspace.own_code(reference)
        scorer_version(workspace, "shouting")
    before = dict(reads.reads)

    def changed():
        now = Present(workspace)
        return [read for read, value in before.items() if now.value(read) != value]

    assert len(before) == 5 and changed() == []
    for file, found, put, read in (
        ("jobs.yaml", "amateur", "beginner", '["suite","jobs",null,"released"]'),
        ("near_misses.py", "[:, :2]", "[:, :3]", '["own_code","near_misses:top_two"]'),
        ("studio.py", '"Ulm"', '"ULM"', '["own_code","studio:Studio"]'),
        ("shouting.py", "max(1", "max(2", '["scorer","shouting"]'),
    ):
        text = (beside / file).read_text("utf-8")
        assert found in text
        (beside / file).write_text(text.replace(found, put, 1), "utf-8")
        assert changed() == [read]
        (beside / file).write_text(text, "utf-8")
