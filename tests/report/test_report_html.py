"""The page: complete, self-contained, safe against hostile text, the same bytes every time."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from synthetic_audit import dataset_summary, synthetic_inputs
from synthetic_table import GRID, synthetic_table

from plumbline.errors import MetricError
from plumbline.report import AbsentCell, ReportInputs, render
from plumbline.report.data import provenance_listing
from plumbline.report.html import SECTIONS
from plumbline.report.inputs import LABEL_ERRORS_SCHEMA, LABEL_SHARES_SCHEMA

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


def anchors(*, adjusted):
    """Return the sections of a page; the chapter on mitigations stands before the labels, where there is one."""
    fixed = [anchor for anchor, _ in SECTIONS if anchor != "changes"]
    if adjusted:
        fixed.insert(fixed.index("label-error"), "mitigations")
    return fixed


def test_every_section_is_there_in_order_and_in_the_contents(page):
    found = re.findall(r'<h2 id="([\w-]+)">', page)
    assert found == anchors(adjusted=True)
    assert re.findall(r'<a href="#([\w-]+)">', page.split("</nav>")[0]) == found


def test_page_is_well_formed_without_repeated_ids(page):
    seen = outline(page)
    assert seen.unbalanced == []
    assert seen.open == []
    ids = [value for _, name, value in seen.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [v[1:] for _, n, v in seen.attributes if n == "href" and v.startswith("#")]
    assert set(targets) <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)


def test_page_loads_nothing_and_runs_nothing(page):
    seen = outline(page)
    assert not {"script", "iframe", "object", "embed", "link", "form", "base"} & set(seen.tags)
    assert not any(name.startswith("on") for _, name, _ in seen.attributes)
    assert not any(name in ("src", "srcset", "data", "action") for _, name, _ in seen.attributes)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", "content", policy) in seen.attributes


def test_hostile_text_is_text():
    evil = HOSTILE[0]
    inputs = synthetic_inputs(FEW, ("planted-fairface",), hostile=HOSTILE)
    inputs = replace(inputs, audit=replace(inputs.audit, title=evil, created=HOSTILE[1]))
    table = synthetic_table(FEW, ("planted-fairface",)).with_columns(
        pl.col("group").replace("Black", evil), reason=pl.lit(HOSTILE[1])
    )
    made = render(table, inputs)
    seen = outline(made)
    assert "script" not in seen.tags
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


def test_undefined_values_are_listed_with_their_reason(narrow, inputs, sketched):
    where = (pl.col("metric") == "harm_rate") & (pl.col("event") == "crime") & (pl.col("model") == GRID[0][0])
    broken = narrow.with_columns(
        value=pl.when(where).then(float("nan")).otherwise("value"),
        reason=pl.when(where).then(pl.lit("no image of the group was accepted")).otherwise("reason"),
    )
    made = render(broken, inputs)
    section = made.split('<h2 id="absent">')[1].split('<h2 id="method">')[0]
    assert section.count("no image of the group was accepted") == broken.filter(where).height
    assert "An undefined value is never shown as 0" in section


def test_absent_cells_and_provenance_are_there(page, inputs):
    absent = page.split('<h2 id="absent">')[1].split("</section>")[0]
    assert "huge-hub-model" in absent
    assert "run plumbline fetch" in absent
    provenance = page.split('<h2 id="provenance">')[1]
    assert provenance.count("b81e44d0") == inputs.provenance.height
    assert inputs.audit.audit_id in provenance
    assert inputs.datasets[0].digest in provenance


def test_gaps_in_neutral_and_positive_words_are_labelled_as_differences(table, inputs, sketched):
    page = render(table.filter(pl.col("suite").str.starts_with("trident")).with_columns(p=pl.lit(0.001)), inputs)
    labels = re.findall(r'<li class="(\w+)"><span class="tone">([^<]*)</span>([^<]*)', page)
    gaps = [(label, text) for _, label, text in labels if "in being taken for a" in text]
    bias = [text for label, text in gaps if label == "evidence of bias"]
    difference = [text for label, text in gaps if label == "difference between groups"]
    assert bias and all("a negative probe word" in text for text in bias)
    assert difference and not any("a negative probe word" in text for text in difference)


def test_planted_faces_are_never_taken_for_people(narrow, inputs, page, sketched):
    assert "These are planted faces, not people." in page
    assert "Only crime, communion and agency words were planted with known rates" in page
    real = tuple(replace(dataset, planted=False) for dataset in inputs.datasets)
    assert "planted faces, not people" not in render(narrow, replace(inputs, datasets=real, planted_truth=None))
    mixed = (inputs.datasets[0], real[1])
    assert "planted-fairface: these are planted faces" in render(narrow, replace(inputs, datasets=mixed))


def test_comparisons_are_counted(table, page):
    method = page.split('<h2 id="method">')[1]
    assert f"and {table.filter(pl.col('p').is_finite()).height:,} tests" in method


def test_an_audit_without_numbers_still_has_a_page(table, inputs, sketched):
    bare = ReportInputs(audit=inputs.audit, datasets=(dataset_summary("planted-fairface"),), encoders=())
    made = render(table.clear(), bare)
    assert "no finding" in made
    assert re.findall(r'<h2 id="([\w-]+)">', made) == anchors(adjusted=False)
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
def test_a_refused_dataset_without_automatic_labels_is_shown_with_its_failing_checks(narrow, inputs, case, sketched):
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
    data = made.split('<h2 id="data">')[1].split("</section>")[0].split("<h3>planted-utkface</h3>")[1]
    assert '<td>gender balance</td><td class="fail">failed</td>' in data
    assert "unknown_label" in data
    assert ("Label balance, planted-utkface" in data) == (refused.label_shares.height > 0)
    errors = made.split('<h2 id="label-error">')[1].split("</section>")[0]
    assert "No error rates for planted-utkface: no gender label" in errors
    listed = made.split('<h2 id="absent">')[1].split("</section>")[0]
    assert listed.count("failed its check gender balance") == len(inputs.models)
    assert "planted-utkface: 1 of 2 data checks failed: gender balance." in made


TRIDENT = ("trident", "trident_mixed", "trident_composite")


@pytest.mark.parametrize(
    ("chosen", "told", "untold"),
    [
        (~pl.col("suite").is_in(TRIDENT), "Max skew by model and event", "Gap between classes by valence"),
        (pl.col("suite").is_in(TRIDENT), "Gap between classes by valence", "Max skew by model and event"),
        (pl.col("suite") == "trident", "Nothing of this kind was computed", "Max skew by model and event"),
        (pl.col("suite") == "crime", "Nothing of this kind was computed", "Gap between classes by valence"),
        (pl.col("metric") == "harm_rate", "Harm rate", "Max skew by model and event"),
    ],
    ids=["outcomes", "both Trident suites", "single tests", "crime alone", "harm rates alone"],
)
def test_an_audit_of_some_suites_has_a_page(table, inputs, chosen, told, untold, sketched):
    made = render(table.filter(chosen), replace(inputs, provenance=inputs.provenance.clear()))
    adjusted = "macro_accuracy_gain" in table.filter(chosen)["metric"]
    assert re.findall(r'<h2 id="([\w-]+)">', made) == anchors(adjusted=adjusted)
    assert outline(made).unbalanced == []
    assert told in made and untold not in made
    assert "No run was recorded." in made


def test_one_model_on_one_dataset_has_a_page(sketched):
    only = {"datasets": ("planted-fairface",)}
    made = render(synthetic_table(FEW, **only), replace(synthetic_inputs(FEW, **only), absent=()))
    assert "1 model on 1 dataset" in made and outline(made).unbalanced == []
    assert "Every planned combination of model and dataset has its numbers." in made


def test_wrong_frames_are_refused_by_name(table, inputs):
    with pytest.raises(MetricError, match="suite_hash"):
        render(table.drop("suite_hash"), inputs)
    with pytest.raises(MetricError, match="quarantined of the report lacks columns"):
        replace(inputs.datasets[0], quarantined=pl.DataFrame({"path": ["a"]}))
    with pytest.raises(MetricError, match="add cell_id"):
        replace(inputs, provenance=inputs.provenance.drop("cell_id"))


@pytest.mark.slow
def test_seven_models_on_two_datasets_stay_below_five_megabytes():
    assert len(render(synthetic_table(), synthetic_inputs()).encode()) < 5_000_000
