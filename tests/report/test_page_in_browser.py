"""The report in a real browser: what its script does, what it cannot be made to do, how it looks on paper and by phone.

One browser and one page, whose second model, groups, title and files are named by an attacker.
"""

import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from hostile_texts import HIDDEN, HOSTILE
from synthetic_audit import synthetic_inputs
from synthetic_table import GRID, synthetic_table

from plumbline.catalog.schema import row_ids
from plumbline.report import render
from plumbline.report.page import all_numbers
from plumbline.visible import visible
from resources import served

EVIL = HOSTILE["closes a script"]
MODELS = (GRID[0], (EVIL, "large", "6k", "archive"), GRID[6])
GROUPS = {
    "Black": HOSTILE["right to left"] + HOSTILE["a formula"],
    "Indian": HOSTILE["an escape sequence"] + HOSTILE["a template"],
    "White": HOSTILE["an expression"],
    "Asian": HOSTILE["ends a string"],
}


@pytest.fixture(scope="module")
def table():
    """Return a metric table in which an attacker named a model and groups."""
    made = synthetic_table(MODELS)
    undefined = (pl.col("metric") == "accuracy") & (pl.col("model") == GRID[0][0])
    return made.with_columns(
        pl.col("group").replace(GROUPS),
        value=pl.when(undefined).then(float("nan")).otherwise("value"),
        reason=pl.lit(EVIL),
    )


@pytest.fixture(scope="module")
def address(table, made_once):
    """Return the address of the rendered report."""

    def make(folder):
        inputs = synthetic_inputs(MODELS, hostile=tuple(HOSTILE.values()))
        inputs = replace(inputs, audit=replace(inputs.audit, title=EVIL))
        page = render(table, inputs, pages=partial(served.cell_pages, generators=()))
        (folder / "page.html").write_bytes(page.encode())

    folder, _ = made_once("report_in_browser", make)
    return (folder / "page.html").as_uri()


class Seen:
    """What a page did that a reader does not see."""

    def __init__(self, page):
        self.requests, self.said = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))


@pytest.fixture(scope="module")
def opened(browser, address):
    """Return a page at 1280 x 800 with all its first charts drawn, and what it did."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    seen = Seen(page)
    page.goto(address)
    drawn(page)
    yield page, seen
    page.close()


@pytest.fixture
def page(opened):
    """Return the page as it was opened: nothing is filtered, no row is shown."""
    opened[0].keyboard.press("Escape")
    return opened[0]


def drawn(page):
    page.wait_for_selector("html[data-drawn=all]", state="attached")


@pytest.fixture
def numbers(page):
    """Return the page at its table of all numbers, which shows all rows."""
    page.evaluate("document.getElementById('numbers').scrollIntoView()")
    page.locator("#rows table").wait_for()
    if page.locator("#filters").is_visible():
        page.get_by_role("button", name="Show all").click()
    return page


def found(page):
    return int(re.match(r"[\d,]+", page.locator("#found").inner_text())[0].replace(",", ""))


def test_texts_of_an_attacker_are_text(page, numbers):
    assert page.locator("h1").inner_text() == EVIL
    assert page.title().startswith(EVIL)
    page.locator("#filters [name=model]").select_option(label=visible(EVIL))
    assert page.locator("#rows tbody tr td:first-child").first.inner_text() == EVIL
    written = page.evaluate("document.body.innerText")
    assert not re.search(HIDDEN, written)
    assert visible(HOSTILE["Markdown"]) in page.locator("body").text_content()


@pytest.mark.parametrize("column", ["model", "dataset", "attribute"])
def test_a_filter_leaves_the_rows_that_have_its_value(numbers, table, column):
    for value, rows in table.group_by(column).len().filter(pl.col(column).is_not_null()).rows()[:3]:
        shown = visible(value) if column != "attribute" else value.replace("_", " ")
        numbers.locator(f"#filters [name={column}]").select_option(label=shown)
        assert found(numbers) == rows


def test_rows_can_be_chosen_by_evidence(numbers, table):
    numbers.locator("#filters [name=evidence]").select_option(label="evidence")
    assert found(numbers) == table.filter(pl.col("q") < 0.05).height > 0
    numbers.locator("#filters [name=evidence]").select_option(label="undefined")
    assert found(numbers) == table.filter(pl.col("value").is_null() | pl.col("value").is_nan()).height


def test_every_word_of_a_search_is_in_a_row_that_is_found(numbers, table):
    numbers.locator("#filters [name=search]").fill("MAX_SKEW smoothed gender")
    of_skew = table.filter(pl.col("metric") == "max_skew", pl.col("definition") == "smoothed")
    assert found(numbers) == of_skew.filter(pl.col("attribute").str.contains("gender")).height > 0
    numbers.locator("#filters [name=search]").fill("nothing that is there")
    assert found(numbers) == 0


def test_rows_are_sorted_and_paged(numbers, table):
    numbers.locator("#filters [name=search]").fill("harm_rate")
    values = table.filter(pl.col("metric") == "harm_rate")["value"].sort(descending=True)
    head = numbers.get_by_role("button", name="Value")
    head.click()
    head.click()
    assert numbers.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    shown = [float(text) for text in numbers.locator("#rows td:nth-child(6)").all_inner_texts()]
    assert shown == pytest.approx(values.head(50).to_list(), rel=6e-3)
    numbers.get_by_role("button", name="Show all").click()
    assert numbers.get_by_role("button", name="Previous").is_disabled()
    first = numbers.locator("#rows a.row").first.inner_text()
    numbers.get_by_role("button", name="Next").click()
    assert numbers.locator("#rows a.row").first.inner_text() != first
    assert numbers.locator("#pages span").inner_text() == f"page 2 of {-(-table.height // 50)}"


def test_a_row_has_the_id_that_explain_takes_and_can_be_linked(numbers, table):
    numbers.locator("#filters [name=search]").fill("mean_over_pairs crime_pooled")
    numbers.locator("#filters [name=search]").fill("max_skew mean_over_pairs gender_race")
    ids = numbers.locator("#rows a.row").all_inner_texts()
    wanted = table.filter(metric="max_skew", definition="mean_over_pairs", attribute="gender_race")
    assert sorted(ids) == sorted(row_ids(wanted)) and len(ids) > 5
    row = wanted.row(1, named=True)
    numbers.goto(numbers.url.split("#")[0] + f"#row={row_ids(wanted)[1]}")
    dock = numbers.locator("#dock")
    dock.wait_for()
    assert f"plumbline explain {row_ids(wanted)[1]}" in dock.inner_text()
    assert visible(row["model"]) in dock.inner_text() and f"{row['n']}" in dock.inner_text()
    numbers.keyboard.press("Escape")
    assert dock.is_hidden()


def test_a_cell_of_the_scorecard_leads_to_its_chapter_and_its_row(page):
    cell = page.locator("table.score a[data-row]").first
    cell.hover()
    assert "CI" in page.locator("#tip").inner_text()
    cell.click()
    assert f"plumbline explain {cell.get_attribute('data-row')}" in page.locator("#dock").inner_text()
    assert page.locator("#tip").is_hidden(), "what was said of the cell stays no longer than the pointer's click"
    target = page.url.partition("#")[2]
    assert f"#{target}" == cell.get_attribute("href")
    assert page.locator(f"#{target}").evaluate("(place) => Math.abs(place.getBoundingClientRect().top) < 400")


def test_what_was_opened_closes_with_a_click_beside_it(page):
    page.locator("table.score a[data-row]").first.click()
    assert page.locator("#dock").is_visible()
    page.locator("#dock h2").click()
    assert page.locator("#dock").is_visible()
    page.locator("h2:visible").first.click()
    assert page.locator("#dock").is_hidden()


def test_the_first_screen_holds_the_verdict_and_the_scorecard(page):
    page.evaluate("scrollTo(0, 0)")
    for place in (".verdict", "#scorecard"):
        box = page.locator(place).bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 800


def test_beside_a_value_with_evidence_stands_who_is_worst_off(page, table):
    cell = page.locator("table.score td.evidence a").first
    whom = cell.locator(".whom").inner_text()
    assert f"Worst off: {whom}." in cell.get_attribute("data-tip")
    value, named = cell.locator(".value").bounding_box(), cell.locator(".whom").bounding_box()
    assert named["x"] >= value["x"] + value["width"] and named["y"] < value["y"] + value["height"]
    assert page.locator("table.score td.none .whom").count() == 0


def test_a_model_has_a_section_that_its_row_leads_to(page):
    link = page.locator("table.score tbody th a").first
    link.click()
    section = page.locator(page.url[page.url.index("#") :])
    assert section.locator("h3").inner_text() == link.inner_text()
    section.get_by_role("link", name="all its numbers").click()
    page.locator("#rows table").wait_for()
    assert page.locator("#rows td:first-child").first.inner_text() == link.inner_text()


def test_what_is_folded_is_drawn_when_it_is_opened(page):
    folded = page.locator("section.chapter details.rest:has([data-chart])").first
    chart = folded.locator("[data-chart]").first
    folded.locator("summary").first.click()
    chart.locator("svg").first.wait_for()
    assert chart.get_attribute("data-drawn") == "yes"
    folded.locator("summary").first.click()


def test_print_leaves_out_what_is_folded_and_fits_on_twenty_pages(page):
    page.emulate_media(media="print")
    assert not page.locator("details:not([open]):not(.planted)").first.is_visible()
    assert page.locator("details.planted > p").is_visible(), "whom the page is about stands on paper too"
    assert not page.locator("nav.bar").is_visible() and page.locator(".verdict").is_visible()
    page.emulate_media(media="screen")
    printed = page.pdf(prefer_css_page_size=True)
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 20


def test_a_reader_by_keyboard_meets_everything_in_order(page):
    page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
    page.goto(page.url.split("#")[0] + "#top")
    met = []
    for _ in range(14):
        page.keyboard.press("Tab")
        met.append(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert met == sorted(met) and len(set(met)) == len(met)
    page.locator("table.score a[data-row]").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#dock").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#dock").is_hidden()


def test_axe_finds_no_violation(browser, address):
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    drawn(page)
    # Of what is folded axe says nothing, and of many charts the same: without them it takes a fifth of the time.
    page.evaluate("document.querySelectorAll('details:not([open]) > :not(summary)').forEach((one) => one.remove())")
    page.evaluate("[...document.querySelectorAll('.chart svg')].slice(3).forEach((one) => one.remove())")
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
        page.emulate_media(color_scheme=scheme)
        violations = Axe().run(page, options=rules).response["violations"]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in violations] == [], scheme
    page.close()


def test_where_plumbline_ui_serves_the_page_cells_lead_to_dagster_and_mlflow(browser, opened, address):
    assert opened[0].locator(".runs:visible, a[data-page][href]").count() == 0, "alone it has no links to servers"
    body = Path(address.removeprefix("file://")).read_text("utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    seen = Seen(page)
    page.route("**/*", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto(f"{served.DAGSTER}{served.REPORT}")
    first = page.locator("#models .runs").first
    paths = [link.get_attribute("href") for link in first.locator("a").all()]
    assert paths[:2] == [
        f"/assets/tracked_run?view=partitions&partition=planted-fairface%7C{MODELS[0][0]}",
        "/plumbline/mlflow/b81e44d0",
    ]
    page.locator("table.score a[data-row]").first.click()
    docked = page.locator("#dock .runs")
    assert docked.locator("a").first.get_attribute("href") == paths[0] and "MLflow" in docked.inner_text()
    assert {link.get_attribute("rel") for link in docked.locator("a").all()} == {"noopener noreferrer"}
    assert seen.requests == [f"{served.DAGSTER}{served.REPORT}"] and seen.said == []
    page.close()


def test_dark_mode_turns_the_text_of_charts_too(page):
    page.emulate_media(color_scheme="dark")
    text = page.locator(".chart svg text").first
    colours = [
        page.evaluate("getComputedStyle(document.body).backgroundColor"),
        text.evaluate("(text) => getComputedStyle(text).fill"),
    ]
    page.emulate_media(color_scheme="light")
    paper, ink = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert paper < 150 and ink > 400


def test_a_phone_shows_it_without_scrolling_sideways(browser, address):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(address)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def test_verdict_scorecard_and_tables_need_no_script(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("table.score .value").first.is_visible() and page.locator(".verdict").is_visible()
    assert "JavaScript, which is off" in page.locator("#numbers").inner_text()
    context.close()


def test_nothing_is_loaded_and_no_script_but_ours_runs(opened, address):
    page, seen = opened
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.evaluate("document.getElementById('numbers').scrollIntoView()")
    page.locator("#rows table").wait_for()
    assert page.locator("[data-chart]").count() > 3
    deadline = time.monotonic() + 20
    while page.locator("[data-chart]:not([data-drawn=yes])").count() and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    assert page.locator("[data-chart]:not([data-drawn=yes])").count() == 0
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = false })")
    assert page.evaluate("window.ran") is None
    assert seen.requests == [address] and seen.said == []
    running = [script for script in page.locator("script").all() if not script.get_attribute("type")]
    assert len(running) == 2 and page.locator("img").count() == 0


@pytest.mark.slow
def test_half_a_million_rows_are_usable(browser, tmp_path):
    inputs = synthetic_inputs(GRID)
    one = synthetic_table(GRID)
    more = [
        one.with_columns(pl.format("{}-{}", "definition", pl.lit(k)).alias("definition"))
        for k in range(1, 1 + 500_000 // one.height)
    ]
    table = pl.concat([one, *more])
    kept = all_numbers(table, significance=0.05)
    assert kept.rows <= 150_000 and kept.rows + sum(each.rows for each in kept.left_out) == table.height > 490_000
    path = tmp_path / "page.html"
    path.write_text(render(table, inputs), "utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    # Seconds of processor of the page, which other processes of the machine do not change.
    measured = page.context.new_cdp_session(page)
    measured.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri(), wait_until="commit")
    page.evaluate("document.querySelector('[data-chart]').scrollIntoView()")
    page.locator("[data-drawn=yes]").first.wait_for()
    assert busy(measured) < 1.5
    said = page.locator("#numbers p").first.inner_text()
    assert f"{table.height:,}" in said and all(f"({each.rows:,})" in said for each in kept.left_out)
    page.evaluate("document.getElementById('numbers').scrollIntoView()")
    page.locator("#rows table").wait_for()
    before = busy(measured)
    page.locator("#filters [name=search]").fill("max_skew")
    page.get_by_role("button", name="Value").click()
    assert page.locator("th[aria-sort]").count() == 1 and found(page) > 100
    assert busy(measured) - before < 2
    page.close()


def busy(measured):
    """Return the seconds of processor that a page has used."""
    metrics = {each["name"]: each["value"] for each in measured.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]
