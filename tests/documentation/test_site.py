"""The documentation builds as `make docs` does, says everything that the code registers, and needs no network."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import plumbline
from documentation.metric_reference import metric_reference
from documentation.repository_pages import PROJECT, with_links_of_the_site
from plumbline.config.file import PARTS
from plumbline.config.parts import written_keys
from plumbline.language.registry import LANGUAGE_METRICS
from plumbline.metrics.registry import METRICS

GRAPH = PROJECT / "tests" / "orchestration" / "graph.txt"
EVERY = METRICS | LANGUAGE_METRICS


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site strictly: a link that leads nowhere, or a page in no menu, is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def entries(page: Path, level: int) -> dict[str, str]:
    """Return the text after each heading of a level, by its anchor."""
    parts = re.split(rf'<h{level} id="([^"]+)">', page.read_text("utf-8"))
    texts = (html.unescape(re.sub(r"<[^>]+>", "", part)) for part in parts[2::2])
    return dict(zip(parts[1::2], texts))


def test_every_metric_has_its_entry(site):
    found = entries(site / "reference" / "metrics.html", 3)
    assert list(found) == list(dict.fromkeys(found)) and set(found) == set(EVERY)
    for name, traits in EVERY.items():
        said = " ".join(found[name].split())
        for part in (traits.meaning, traits.formula, traits.source):
            assert len(part) > 3 and part.replace("`", "") in said, name


@pytest.mark.parametrize("traits", EVERY.values(), ids=list(EVERY))
def test_what_a_metric_says_of_itself_is_a_sentence_and_a_formula(traits):
    assert traits.meaning[0].isupper() and traits.meaning.endswith("."), traits.meaning
    assert len(traits.meaning) > 20 and not traits.formula.endswith(".") and traits.formula != traits.meaning


def test_the_traits_of_a_metric_are_told_as_it_declares_them():
    entry = metric_reference().split("### max_skew\n")[1].split("### ")[0]
    for line in (
        "- source: Al Sahili et al., Data Matters Most, section 3.4",
        "- computed: `plumbline.metrics.disparities.max_skew`",
        "- values: 0 to ∞, one value over all groups",
        "- groups that are answered alike give: 0",
        "- a group without images: is left out",
        "- definition in headlines: `mean_over_pairs`",
    ):
        assert line in entry, line


def test_every_key_of_the_audit_file_has_its_row_and_its_meaning(site):
    page = (site / "reference" / "audit-file.html").read_text("utf-8")
    tables = re.findall(r"<h2 id=.*?<table>(.*?)</table>", page, re.DOTALL)
    assert len(tables) == len(PARTS)
    for (part, model), table in zip(PARTS.items(), tables):
        rows = [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in re.findall(r"<td>(.*?)</td>\n" * 4, table)]
        assert [row[0] for row in rows] == [key.alias or name for name, key in written_keys(model).items()], part
        assert all(row[3] for row in rows), part


def test_every_promised_name_has_its_entry_and_its_examples(site):
    page = (site / "reference" / "python.html").read_text("utf-8")
    anchors = set(re.findall(r'<h3 id="plumbline\.([^"]+)"', page))
    assert anchors == set(plumbline.__all__) - {"__version__"}
    assert "https://" not in re.sub(r'href="[^"]*"', "", page).replace("https://schema.org", "")
    for notebook in ("own_data", "training_loop"):
        assert "plumbline.audit(" in html.unescape(
            re.sub(r"<[^>]+>", "", (site / "examples" / f"{notebook}.html").read_text("utf-8"))
        )


def test_every_asset_has_its_entry(site):
    found = entries(site / "reference" / "assets.html", 3)
    drawn = [
        re.match(r"\S+: (\S+) \[.*\] <- (.*); checks (.*)", line) for line in GRAPH.read_text("utf-8").splitlines()
    ]
    assert set(found) == {each[1] for each in drawn}
    for _, name, parents, checks in ((each, *each.groups()) for each in drawn):
        heading, *told = [line for line in found[name].splitlines() if line.strip()]
        assert heading.startswith(name) and len(told[0]) > 30, "the first line after the name says what it is"
        text = "\n".join(told)
        for check in checks.split(", ") if checks != "-" else ():
            assert re.search(rf"check {check} \((blocks|warns)\): \w", text), (name, check)
        sources = re.search(r"made from: (.*)", text)
        assert (sources[1] if sources else "-") == parents, name


def test_every_command_has_its_entry(site):
    from typer.main import get_command

    from orchestration.command_line import app

    found = entries(site / "reference" / "commands.html", 2)
    commands = get_command(app).commands
    assert set(found) == set(commands)
    for name, command in commands.items():
        for parameter in command.params:
            assert all(option in found[name] for option in parameter.opts if option.startswith("-")), name


def test_pages_load_nothing_from_elsewhere(site):
    loaded = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        assert not loaded.search(page.read_text("utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?https?:", sheet.read_text("utf-8")), sheet


def test_the_first_page_links_into_the_site(site):
    index = (site / "index.html").read_text("utf-8")
    assert 'href="scale.html"' in index and 'href="decisions/index.html"' in index
    assert 'href="docs/' not in index


def test_the_sample_report_is_a_whole_report_without_places_of_the_machine_it_was_made_on(site):
    assert 'href="sample-report.html"' in (site / "index.html").read_text("utf-8")
    sample = (site / "sample-report.html").read_text("utf-8")
    chapters = re.findall(r'<section id="([^"]+)"', sample)
    assert {"findings", "bias", "mitigations"} <= set(chapters) and sample.rstrip().endswith("</html>")
    assert "file://" not in sample and str(PROJECT) not in sample


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "[a](docs/scale.md)", "[a](scale.md)"),
        ("index.md", "[a](docs/scale.md#b)", "[a](scale.md#b)"),
        ("index.md", "[a](docs/decisions)", "[a](decisions/index.md)"),
        ("index.md", "[a](studies)", "[a](studies.md)"),
        ("studies.md", "[a](../docs/scale.md)", "[a](scale.md)"),
        ("studies.md", "[a](trident.yaml)", "a"),
        ("index.md", "[a](docs/sample-report.html)", "[a](sample-report.html)"),
        ("scale.md", "[a](../README.md)", "[a](index.md)"),
        ("scale.md", "[a](../deploy/kubernetes)", "a"),
        ("decisions/0001-x.md", "[a](../scale.md)", "[a](../scale.md)"),
        ("scale.md", "[a](gone.md)", "[a](gone.md)"),
        ("scale.md", "[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("scale.md", "[a](#b)", "[a](#b)"),
    ],
)
def test_links_of_the_repository_become_those_of_the_site(page, link, expected):
    files = {"index.md", "scale.md", "studies.md", "decisions/index.md", "sample-report.html"}
    assert with_links_of_the_site(link, page, files) == expected


def test_every_picture_is_there(site):
    shown = [
        page.parent / source
        for page in site.rglob("*.html")
        for source in re.findall(r'<img\b[^>]*\bsrc="([^":]+)"', page.read_text("utf-8"))
    ]
    assert len(shown) >= 4
    assert [path for path in shown if not path.is_file()] == []
