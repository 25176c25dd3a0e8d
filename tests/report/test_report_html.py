"""The page as text: complete, self-contained, safe against hostile text."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from read_back import section
from scorecard_rows import answer, frame
from synthetic_audit import dataset_summary, synthetic_inputs
from synthetic_table import GRID, synthetic_table

from plumbline.errors import MetricError
from plumbline.reasons import reason
from plumbline.report import AbsentCell, ReportInputs, render
from plumbline.report.data import provenance_listing
from plumbline.report.html import explanations_folder
from plumbline.report.inputs import LABEL_ERRORS_SCHEMA, LABEL_SHARES_SCHEMA, NOT_CHECKED

FEW = (GRID[0],)
HOSTILE = (
    "<script>alert(1)</script>.jpg",
    "a\u202egnp.exe",
    "\"onload='x'.jpg",
    "{{ 7 * 7 }}.jpg",
    "x\x00\x1b[31m.jpg",
)
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Outline(HTMLParser):
    """Collects tags, attributes and balance of a page."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.unbalanced = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    return parser


def sections(page):
    """Return the anchors of the sections of a page, in order."""
    return re.findall(r'<section id="([\w-]+)"', page)


FIRST = ["scorecard", "findings", "advice", "audited", "limits", "words-used", "models", "chapters"]
LAST = ["numbers", "data", "absent", "method", "provenance"]


def test_the_answer_comes_first_then_chapters_then_what_they_rest_on(page):
    found = sections(page)
    assert found[:8] == FIRST and found[-5:] == LAST
    contents = re.findall(r'<a href="#([\w-]+)">', section(page, "chapters"))
    assert contents == found[8:-5] and len(contents) > 3


def test_a_chapter_folds_to_its_first_chart(page):
    chapter = section(page, "bias")
    before, folded = chapter.split('<details class="rest">')
    assert before.count("data-chart=") == 1 and folded.count("data-chart=") > 2


def test_page_is_well_formed_without_repeated_ids(page):
    seen = outline(page)
    assert seen.unbalanced == []
    assert seen.open == []
    ids = [value for _, name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [v[1:] for _, n, v in seen.attributes if n == "href" and v.startswith("#") and "row=" not in v]
    assert set(targets) <= set(ids)
    described = [v for _, n, v in seen.attributes if n == "aria-labelledby"]
    assert described and set(described) <= set(ids)


def test_page_loads_nothing_and_its_policy_allows_its_own_scripts_alone(page):
    seen = outline(page)
    assert not {"iframe", "object", "embed", "link", "base"} & set(seen.tags)
    assert not any(
        name.startswith("on") or name in ("src", "srcset", "data", "action", "style") for _, name, _ in seen.attributes
    )
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)
    data = [f' type="application/octet-stream" id="{name}"' for name in ("table", "charts", "library")]
    assert [name for name, _ in scripts] == [*data, ""]
    (policy,) = [v for t, n, v in seen.attributes if t == "meta" and n == "content" and "default-src" in v]
    stated = dict(part.split(" ", 1) for part in policy.split("; "))
    library = zlib.decompress(base64.b64decode(scripts[2][1]))
    assert stated["script-src"].split() == [digest(scripts[-1][1].encode()), digest(library)]
    assert stated["style-src"] == digest(re.search(r"<style>(.*?)</style>", page, re.S)[1].encode())
    assert (stated["default-src"], stated["img-src"]) == ("'none'", "data:")
    assert "http:" not in page and "https:" not in page and "@import" not in page


def digest(content):
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


def test_the_page_holds_the_specification_of_every_chart_that_it_places(page):
    (packed,) = re.findall(r'id="charts">([^<]*)<', page)
    held = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert set(re.findall(r'data-chart="([^"]*)"', page)) == set(held["specs"])
    assert all("config" not in spec for spec in held["specs"].values())


def test_hostile_text_is_text():
    evil = HOSTILE[0]
    inputs = synthetic_inputs(FEW, ("planted-fairface",), hostile=HOSTILE)
    inputs = replace(inputs, audit=replace(inputs.audit, title=evil, created=HOSTILE[1]))
    table = synthetic_table(FEW, ("planted-fairface",)).with_columns(
        pl.col("group").replace("Black", evil), reason=pl.lit(HOSTILE[1])
    )
    made = render(table, inputs)
    seen = outline(made)
    assert seen.tags.count("script") == 4
    assert not any(name.startswith("on") for _, name, _ in seen.attributes)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;.jpg" in made
    assert "a\\u202egnp.exe" in made
    assert "{{ 7 * 7 }}.jpg" in made
    assert "x\\u0000\\u001b[31m.jpg" in made
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f]", made)


def test_script_links_of_checks_are_dropped(page):
    assert "javascript:" not in page
    assert 'href="data_docs/index.html"' in page


def test_quarantined_files_are_listed_with_what_was_found(page):
    rows = re.findall(r"<tr>.*?</tr>", page)
    (row,) = {r for r in rows if "val/88.jpg" in r}
    assert [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row)] == [
        "val/88.jpg", "90", "unknown_label", "the race is not in the vocabulary", "Martian", "one of 7 races",
    ]  # fmt: skip


def test_undefined_values_are_listed_with_their_reason(narrow, inputs):
    where = (pl.col("metric") == "harm_rate") & (pl.col("event") == "crime") & (pl.col("model") == GRID[0][0])
    broken = narrow.with_columns(
        value=pl.when(where).then(float("nan")).otherwise("value"),
        reason=pl.when(where).then(pl.lit("no image of the group was accepted")).otherwise("reason"),
    )
    absent = section(render(broken, inputs), "absent")
    assert absent.count("no image of the group was accepted") == broken.filter(where).height
    assert "An undefined value is never shown as 0" in absent


def test_absent_cells_and_provenance_are_there(page, inputs):
    absent = section(page, "absent")
    assert "huge-hub-model" in absent
    assert "run plumbline fetch" in absent
    provenance = section(page, "provenance")
    assert provenance.count("b81e44d0") == inputs.provenance.height
    assert inputs.audit.audit_id in provenance
    assert inputs.datasets[0].digest in provenance


def test_planted_faces_are_never_taken_for_people(narrow, inputs, page):
    assert "These are planted faces, not people:" in page
    assert "Only crime, communion and agency words were planted with known rates" in page
    real = tuple(replace(dataset, planted=False) for dataset in inputs.datasets)
    assert "planted faces, not people" not in render(narrow, replace(inputs, datasets=real, planted_truth=None))
    mixed = (inputs.datasets[0], real[1])
    assert "planted-fairface: these are planted faces" in render(narrow, replace(inputs, datasets=mixed))


def test_comparisons_are_counted(table, page):
    method = section(page, "method")
    assert f"and {table.filter(pl.col('p').is_finite()).height:,} tests" in method


def test_an_audit_without_numbers_still_has_a_page(table, inputs):
    bare = ReportInputs(audit=inputs.audit, datasets=(dataset_summary("planted-fairface"),), encoders=())
    made = render(table.clear(), bare)
    assert sections(made)[-5:] == LAST and "models" not in sections(made)
    assert "Every row of the metric table, 0 in all" in made
    assert outline(made).unbalanced == []


def test_provenance_names_the_labeller_though_most_rows_have_none(table, inputs):
    assert table["labeller_sha256"][0] is None
    listing = provenance_listing(inputs, table)
    assert {row[listing.heads.index("Labeller")] for row in listing.rows} == {"e" * 12}
    single = provenance_listing(inputs, table.filter(suite="trident"))
    assert {row[single.heads.index("Labeller")] for row in single.rows} == {"–"}
    assert {row[single.heads.index("Checkpoint")] for row in single.rows} == {"c" * 12}


REFUSED = {
    "nothing accepted": {"accepted": 0, "label_shares": pl.DataFrame(schema=LABEL_SHARES_SCHEMA)},
    "labels unknown": {
        "label_shares": pl.DataFrame(
            [("race", "White", 0, None, 0.1, 0.3), ("race", "Black", 0, float("nan"), None, None)],
            schema=LABEL_SHARES_SCHEMA,
            orient="row",
        )
    },
    "base labels": {},
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_dataset_without_automatic_labels_is_shown_with_its_failing_checks(narrow, inputs, case):
    refused = replace(
        dataset_summary("planted-utkface"), label_errors=pl.DataFrame(schema=LABEL_ERRORS_SCHEMA), **REFUSED[case]
    )
    absent = tuple(
        AbsentCell(name, refused.id, "the dataset failed its check gender balance") for name in inputs.models
    )
    own = narrow.filter(pl.col("dataset") != refused.id)
    truth = inputs.planted_truth.filter(pl.col("dataset") != refused.id)
    made = render(own, replace(inputs, datasets=(inputs.datasets[0], refused), absent=absent, planted_truth=truth))
    assert outline(made).unbalanced == []
    data = section(made, "data").split("<b>planted-utkface</b>")[1]
    assert '<td>gender balance</td><td class="fail">failed</td>' in data
    assert "unknown_label" in data
    assert ("Label balance" in data) == (refused.label_shares.height > 0)
    listed = section(made, "absent")
    assert listed.count("failed its check gender balance") == len(inputs.models)
    assert 'Checks passed: 1 of 2; <strong class="fail">failed: gender balance' in data
    unmade = refused.checks.head(1).with_columns(passed=pl.lit(True), observed=pl.lit(f"{NOT_CHECKED}no group"))
    idle = replace(refused, checks=pl.concat([refused.checks, unmade]))
    data = section(render(own, replace(inputs, datasets=(idle,), absent=absent, planted_truth=truth)), "data")
    assert "Checks passed: 1 of 2; 1 had nothing to check;" in data and ">not checked<" in data


TRIDENT = ("trident", "trident_mixed", "trident_composite")


@pytest.mark.parametrize(
    ("chosen", "told", "untold"),
    [
        (~pl.col("suite").is_in(TRIDENT), "bias", "trident"),
        (pl.col("suite").is_in(TRIDENT), "trident", "bias"),
        (pl.col("metric") == "harm_rate", "bias", "trident"),
    ],
    ids=["outcomes", "both Trident suites", "harm rates alone"],
)
def test_an_audit_of_some_suites_has_a_page(table, inputs, chosen, told, untold):
    made = render(table.filter(chosen), replace(inputs, provenance=inputs.provenance.clear()))
    assert outline(made).unbalanced == []
    assert told in sections(made) and untold not in sections(made)
    assert "No run was recorded." in made


def test_one_model_on_one_dataset_has_a_page():
    only = {"datasets": ("planted-fairface",)}
    made = render(synthetic_table(FEW, **only), replace(synthetic_inputs(FEW, **only), absent=()))
    assert outline(made).unbalanced == []
    assert "Every planned combination of model and dataset has its numbers." in made


def test_the_legend_has_no_mark_of_cells_that_draw_none(inputs):
    never = answer("a", low=0.0, high=0.0, value=0.0, p=1.0, q=1.0, reason=reason("event_never_happens"))
    made = render(frame(never, answer("b")), inputs)
    legend = made.partition('aria-label="Marks"')[2].partition("</ul>")[0]
    assert "evidence of a difference" in legend and "no image got the label" not in legend
    assert "no image" in made


def test_wrong_frames_are_refused_by_name(table, inputs):
    with pytest.raises(MetricError, match="suite_hash"):
        render(table.drop("suite_hash"), inputs)
    with pytest.raises(MetricError, match="quarantined of the report lacks columns"):
        replace(inputs.datasets[0], quarantined=pl.DataFrame({"path": ["a"]}))
    with pytest.raises(MetricError, match="add cell_id"):
        replace(inputs, provenance=inputs.provenance.drop("cell_id"))


@pytest.mark.slow
def test_seven_models_on_two_datasets_stay_below_two_and_a_half_megabytes():
    assert len(render(synthetic_table(), synthetic_inputs()).encode()) < 2_500_000


def test_an_id_of_an_audit_leads_to_no_other_folder():
    assert explanations_folder("0f" * 32) == "explanations/0f0f0f0f0f0f"
    with pytest.raises(MetricError, match="no id of an audit"):
        explanations_folder("../../../../x")
