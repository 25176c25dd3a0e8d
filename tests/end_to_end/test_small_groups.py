"""Groups of fewer people than `min_shown` appear in nothing that an audit of staff leaves behind, all decoded."""

import base64
import gzip
import re
import zlib

import numpy as np
import polars as pl
import pytest
import yaml
from homes import make_home
from PIL import Image

import plumbline
from plumbline.catalog.own_suites import starter
from plumbline.catalog.schema import row_ids
from plumbline.catalog.suites import suite_of
from plumbline.datasets.folder import ColumnMap, Listing, MappedFolder
from plumbline.datasets.ingestion import ingest
from plumbline.metrics.registry import FAMILIES
from plumbline.provenance.tracked_numbers import headline_metrics
from plumbline.report import AuditSummary, ReportInputs, render

LEAST = 5
SECRET = ("quokka", "wombats", "echidnic")
"""Labels of a gender, a team and a disability of fewer than five people."""
CROSSED = re.compile(r"deaf(?:_| × | x )sales", re.IGNORECASE)
"""The cell of two shown groups that holds fewer than five people."""
_PACKED = re.compile(rb"<script[^>]*>([A-Za-z0-9+/=\s]{40,})</script>")


def staff(n=300):
    """Return the rows of a table: three genders, 40 teams, disability and department, each with a group too small."""
    rng = np.random.default_rng(3)
    genders = ["man"] * 150 + ["woman"] * 132 + ["non-binary"] * 12 + ["quokka"] * 3 + [None] * 3
    teams = [f"team {i % 39:02}" for i in range(n - 2)] + ["wombats"] * 2
    disability = np.array(["none"] * (n - 48) + ["deaf"] * 41 + ["echidnic"] * 4 + [None] * 3, dtype=object)
    department = np.where(np.arange(n) % 2 == 0, "R&D", "sales")
    # Of the deaf people, three are in sales.
    deaf = np.flatnonzero(disability == "deaf")
    department[deaf], department[deaf[:3]] = "R&D", "sales"
    rows = {
        "photo": [f"pictures/{i}.png" for i in range(n)],
        "sex": rng.permutation(np.array(genders, dtype=object)),
        "team": rng.permutation(teams),
        "disability": disability,
        "department": department,
    }
    return pl.DataFrame(rows)


COLUMNS = {"gender": "sex", "team": "team", "disability": "disability", "department": "department"}
CROSSES = [["disability", "department"]]


def texts_of(name, content):
    """Yield every text that a file holds, decoded where it is packed."""
    if name.endswith(".parquet"):
        yield repr(pl.read_parquet(content).to_dicts())
        return
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    yield content.decode("utf-8", "replace")
    for packed in _PACKED.findall(content):
        try:
            yield zlib.decompress(base64.b64decode(packed)).decode("utf-8", "replace")
        except (zlib.error, ValueError):
            continue


def told(files):
    """Return (file, what it tells) of everything that tells of a group that is too small."""
    return [
        (name, found)
        for name, content in files
        for text in texts_of(name, content)
        for found in (*(word for word in SECRET if word in text.lower()), *CROSSED.findall(text)[:1])
    ]


def totals_that_tell(table):
    """Return the rows whose total less the groups that are shown leaves fewer people than may be shown."""
    key = ["model", "dataset", "suite", "event"]
    everyone = table.filter(metric="harm_rate", definition="top1", statistic="estimate", condition="before")
    groups = table.filter(metric="outcome_proportion", condition="before").drop_nulls("group").filter(pl.col("n") > 0)
    shown = groups.group_by(*key, "attribute").agg(pl.sum("n").alias("shown"), pl.min("n").alias("least"))
    both = shown.join(everyone.select(*key, "n"), on=key, nulls_equal=True)
    left = pl.col("n") - pl.col("shown")
    assert both.height > 4
    return both.filter(((left > 0) & (left < LEAST)) | (pl.col("least") < LEAST))


def cells_that_tell(table):
    """Return the crossed groups by which what is left of a group of disability or department is fewer people."""
    shares = table.filter(metric="outcome_proportion", suite="crime", event="crime", condition="before")
    size = {(row["attribute"], row["group"]): row["n"] for row in shares.iter_rows(named=True)}
    cross = next(attribute for attribute, _ in size if attribute not in COLUMNS and "disability" in attribute)
    left = {}
    for attribute in ("disability", "department"):
        for group in (name for of, name in size if of == attribute):
            inside = [n for (of, name), n in size.items() if of == cross and group in name.split("_")]
            left[group] = size[attribute, group] - sum(inside)
    assert len(left) >= 4
    return {group: n for group, n in left.items() if 0 < n < LEAST}


@pytest.fixture(scope="module")
def found():
    """Return an audit in memory of the labels as they are in the table, every family of images included."""
    return audited()


def audited(seed=0):
    """Return the audit of vectors that this seed draws, asked words of all kinds."""
    rows, rng = staff().with_columns(scene=pl.lit("office")), np.random.default_rng(seed)
    suites = ["crime", "agency", "perception", "markedness", "templates", *map(own_suite, ("captions", "trident"))]
    texts = plumbline.prompts(suites)
    return plumbline.audit_features(
        rng.normal(size=(rows.height, 16)), text_features=rng.normal(size=(len(texts), 16)),
        labels=rows.rename({"sex": "gender"}).drop("photo"), attributes=["team", "disability", "department"],
        crosses=CROSSES, suites=suites, min_shown=LEAST, logit_scale=100.0, resamples=100, permutations=100,
    )  # fmt: skip


def own_suite(kind):
    """Return the starter of a kind: its captions and probes are of gender and department, as the staff are."""
    content = yaml.safe_load(starter(kind, kind + "-mine"))
    if kind == "trident":
        words = {"none": "person", "deaf": "deaf person"}
        content |= {"attribute": "disability", "classes": {"template": "a photo of {}", "words": words}}
    return suite_of(content)


def test_the_planted_table_tells_what_must_not_be_told(tmp_path):
    """So that the tests below can fail."""
    content = staff().write_csv().encode()
    assert {word for _, word in told([("people.csv", content)])} == set(SECRET)
    packed = base64.b64encode(zlib.compress(content))
    assert told([("page.html", b"<script type='x'>" + packed + b"</script>")])
    frame = staff().with_columns(both=pl.concat_str("disability", "department", separator="_"))
    frame.write_parquet(tmp_path / "a.parquet")
    assert ("a.parquet", "deaf_sales") in told([("a.parquet", (tmp_path / "a.parquet").read_bytes())])


def test_records_and_refusals_hold_no_label_of_a_small_group(tmp_path):
    staff().write_csv(tmp_path / "people.csv")
    mapped = ColumnMap(index="people.csv", path="photo", columns=COLUMNS, crosses=CROSSES)
    read = ingest(Listing(mapped), tmp_path, dataset="staff")
    assert read.records.height == 300 and read.records["team"].n_unique() > 30
    files = {"records": read.records, "quarantine": read.quarantine, "ungrouped": read.ungrouped}
    assert told((f"{name}.csv", frame.write_csv().encode()) for name, frame in files.items()) == []


def test_a_picture_that_is_listed_twice_does_not_tell_the_labels_that_contradict_each_other(tmp_path):
    rows = staff().head(60).with_columns(sex=pl.lit("man"), photo=pl.format("{}.png", pl.int_range(60)))
    twice = rows.head(1).with_columns(photo=pl.lit("other.png"), sex=pl.lit("quokka"))
    for i in range(60):
        Image.fromarray(np.random.default_rng(i).integers(0, 255, (8, 8, 3), np.uint8)).save(tmp_path / f"{i}.png")
    (tmp_path / "other.png").write_bytes((tmp_path / "0.png").read_bytes())
    pl.concat([rows, twice]).write_csv(tmp_path / "people.csv")
    mapped = ColumnMap(index="people.csv", path="photo", columns=COLUMNS)
    read = ingest(MappedFolder(mapped), tmp_path, dataset="staff")
    assert read.quarantine["code"].to_list() == ["conflicting_duplicate"] * 2
    assert read.quarantine["found"][0] == "other values of gender"
    assert told([("quarantine.csv", read.quarantine.write_csv().encode())]) == []


def test_tables_exports_report_and_mlflow_tell_nothing(found, tmp_path):
    shown = set(found.table["attribute"].drop_nulls())
    assert {"gender", "team", "disability", "department"} <= shown
    genders = found.table.filter(attribute="gender", metric="outcome_proportion")["group"]
    assert set(genders) == {"man", "woman", "non-binary"}
    files = [(path.name, path.read_bytes()) for path in found.export(tmp_path)]
    assert {name for name, _ in files} >= {"metric_table.parquet", "metric_table.csv", "croissant.json", "numbers.json"}
    about = {"title": "Staff", "created": "now", "config_path": "a", "code_version": "1", "seed": 1, "resamples": 100}
    page = render(found.table, ReportInputs(AuditSummary(audit_id="0f" * 32, **about), (), ())).encode()
    sent = repr(headline_metrics(found.table)).encode() + repr(found.findings).encode()
    assert len(page) > 100_000 and b"department" in sent
    files += [("report.html", page), ("mlflow.txt", sent), ("shown.txt", found._repr_html_().encode())]
    assert told(files) == []
    assert totals_that_tell(found.table).is_empty() and cells_that_tell(found.table) == {}


def test_every_family_and_figure_is_of_all_groups_that_are_shown_and_tells_of_no_other(found, tmp_path):
    # Confounds are of pictures whose lighting, pose or age is varied; classes of things and own metrics are no people.
    elsewhere = {"confound_metrics", "utility_metrics", "own_metrics"}
    metrics, asked = set(found.table["metric"]), set(FAMILIES) - elsewhere
    assert {name for name in asked if not metrics & set(FAMILIES[name].metrics)} == set()
    # Of the 40 teams one has two people; the cross has its cell of three, and what would tell of it, left out.
    shares = found.table.filter(metric="outcome_proportion", suite="crime", event="crime").drop_nulls("group")
    groups = {name: set(rows["group"]) for (name,), rows in shares.group_by("attribute")}
    assert len(groups["team"]) >= 38 and len(groups["gender"]) == 3
    assert any("disability" in name and "department" in name for name in groups)
    charts = {name: chart.to_json() for name, chart in found.charts().items()}
    charts["scorecard"] = found.scorecard().to_json()
    assert len(charts) > 5 and any("non-binary" in chart for chart in charts.values())
    changed = found.diff(audited(seed=1))
    assert changed.height > 100 and {"team", "disability"} <= set(changed["attribute"].drop_nulls())
    found.log_to(lambda numbers: charts.update(sent=repr(numbers)))
    told_of = {**charts, "diff": repr(changed.to_dicts()), "scores": repr(found.scores.to_dicts())}
    told_of["pandas"] = found.to_pandas().to_csv()
    assert told((name, text.encode()) for name, text in told_of.items()) == []


def test_three_people_take_one_further_group_with_them_and_are_told_of_in_words(tmp_path):
    """Men, women and the total would tell of them: see docs/decisions/0063."""
    rows = staff().with_columns(sex=pl.Series(["man"] * 150 + ["woman"] * 147 + ["non-binary"] * 3))
    rows.write_csv(tmp_path / "people.csv")
    mapped = ColumnMap(index="people.csv", path="photo", columns={"gender": "sex"})
    read = ingest(Listing(mapped), tmp_path, dataset="staff")
    assert read.records["gender"].drop_nulls().unique().to_list() == ["man"]
    assert read.ungrouped.to_dicts() == [{"attribute": "gender", "code": "small_group", "rows": 150}]


@pytest.mark.slow
def test_an_audit_of_staff_leaves_nothing_that_tells(tmp_path):
    rows, root, rng = staff(), tmp_path / "staff", np.random.default_rng(1)
    for name in rows["photo"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).save(root / name)
    rows.write_csv(root / "people.csv")
    mapped = {"index": "people.csv", "path": "photo", "columns": COLUMNS, "crosses": CROSSES}
    home = make_home(
        tmp_path / "home",
        empty=True,
        labeller=None,
        datasets={"staff": {"reader": "folder", "root": str(root), "map": mapped}},
        encoders={"one": {"address": "local-dir:plumbline/world/checkpoints/small-control-3k"}},
        audit=[{"suites": ["crime", "agency", "perception", "markedness", "templates"]}],
        statistics={"resamples": 100, "permutations": 100},
        mitigations={},
    )
    code, output = home.run("audit")
    assert code == 0, output
    table = home.workspace.lake.read_table("metric_table")
    assert totals_that_tell(table).is_empty() and cells_that_tell(table) == {}
    row = row_ids(table.filter(metric="max_skew", attribute="team", event="crime"))[0]
    code, explained = home.run("explain", row)
    assert code == 0, explained
    code, exported = home.run("export", "--to", str(tmp_path / "exported"))
    assert code == 0, exported
    files = [
        (path.name, path.read_bytes())
        for folder in (home.workspace.home, tmp_path / "exported")
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert len(files) > 50
    printed = [("audit", output), ("explain", explained), ("export", exported)]
    assert told([*files, *((name, text.encode()) for name, text in printed)]) == []
