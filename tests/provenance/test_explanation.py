"""Which row is meant, what is there of its sources, and how it is shown."""

import io

import polars as pl
import pytest
from PIL import Image
from rich.console import Console

from orchestration.explained import print_explanation
from plumbline.catalog.schema import IDENTIFYING, metric_frame, row_id, row_ids
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError
from plumbline.provenance.chain import Link, changed_files, compared, damaged
from plumbline.provenance.explanation import Explanation, find_row, render_explanation, thumbnail
from plumbline.provenance.influence import Influence, Moved

HOSTILE = "<img src=x onerror=alert(1)>[red]\u202e"


def a_row(**changes):
    return {
        "metric": "max_skew", "definition": "mean_over_pairs", "model": "clip", "dataset": "faces", "suite": "crime",
        "attribute": "race", "event": "crime", "condition": "before", "statistic": "estimate", "value": 1.1,
        "ci_low": 0.8, "ci_high": 1.4, "p": 0.001, "q": 0.002, "n": 2100, "audit_id": "a" * 64,
    } | changes  # fmt: skip


TABLE = metric_frame([a_row(), a_row(definition="smoothed", value=0.9), a_row(model="other"), a_row(event=HOSTILE)])


def test_the_name_of_a_row_says_what_is_measured_and_not_what_was_found():
    assert row_id(a_row()) == row_id(a_row(value=7.0, q=None, n=3, audit_id="b" * 64, reason="other"))
    assert row_ids(TABLE).n_unique() == TABLE.height
    for column in IDENTIFYING:
        other = 3 if column in ("k", "seed") else "other"
        assert row_id(a_row()) != row_id(a_row(**{column: other})), column


def test_the_name_of_a_row_stays_what_it_is():
    # Links and notes of people hold it: a change here breaks them.
    assert row_id(a_row()) == "32433f662e4b"


def test_a_row_is_found_by_its_name_or_the_beginning_of_it():
    name = row_id(a_row())
    assert find_row(TABLE, name, {})["value"] == find_row(TABLE, name[:8].upper(), {})["value"] == 1.1


def test_filters_must_fit_one_row_or_the_candidates_are_listed():
    assert find_row(TABLE, None, {"model": "other"})["model"] == "other"
    with pytest.raises(ConfigError, match="3 rows of the metric table fit") as caught:
        find_row(TABLE, None, {"model": "clip"})
    told = str(caught.value)
    assert (
        f"{row_id(a_row(definition='smoothed'))}  definition=smoothed" in told and "filter by definition, event" in told
    )
    with pytest.raises(ConfigError, match="no row"):
        find_row(TABLE, None, {"model": "nobody"})
    with pytest.raises(ConfigError, match="too short"):
        find_row(TABLE, "a", {})


@pytest.mark.parametrize(
    ("recorded", "now", "state"),
    [("a", "a", "unchanged"), ("a", "b", "changed"), ("a", None, "gone"), (None, "a", "not checked")],
)
def test_states_of_a_link(recorded, now, state):
    assert compared(recorded, now) == state


def jpeg(colour):
    data = io.BytesIO()
    Image.new("RGB", (300, 200), colour).save(data, "JPEG")
    return data.getvalue()


def test_images_that_are_gone_or_changed_are_named(tmp_path):
    recorded = {}
    for name, colour in (("kept.jpg", "red"), ("changed.jpg", "green"), ("gone.jpg", "blue")):
        (tmp_path / name).write_bytes(jpeg(colour))
        recorded[name] = digest_bytes(jpeg(colour))
    assert str(changed_files(tmp_path, recorded)) == ""
    (tmp_path / "gone.jpg").unlink()
    (tmp_path / "changed.jpg").write_bytes(jpeg("white"))
    assert str(changed_files(tmp_path, recorded)) == "1 gone: gone.jpg; 1 changed: changed.jpg"
    shown = {name: thumbnail(tmp_path / name, digest, name) for name, digest in recorded.items()}
    assert shown["kept.jpg"].source.startswith("data:image/jpeg;base64,") and not shown["kept.jpg"].missing
    assert len(shown["kept.jpg"].source) < 8000
    assert shown["gone.jpg"].source is None and "gone" in shown["gone.jpg"].missing
    assert shown["changed.jpg"].source is None and "changed since" in shown["changed.jpg"].missing


@pytest.fixture
def explanation(tmp_path):
    path = tmp_path / "face.jpg"
    path.write_bytes(jpeg("red"))
    image = digest_bytes(path.read_bytes())
    chain = (
        Link(0, "metric table", "metric_table", "c" * 64, "unchanged"),
        Link(4, "prompts", "suite crime", "d" * 64, "unchanged", texts=("a photo of a thief", HOSTILE)),
        Link(4, "dataset folder", HOSTILE, "e" * 64, "gone", f"2 gone: {HOSTILE}"),
    )
    moved = (Moved(HOSTILE, 0.9, -0.2, (image, "f" * 64), 31),)
    row = TABLE.filter(pl.col("event") == HOSTILE).to_dicts()[0]
    shown = {image: thumbnail(path, image, HOSTILE)}
    return Explanation(row, chain, Influence("One image is left out at a time.", moved), shown)


def test_the_page_escapes_what_is_hostile_and_loads_nothing(explanation):
    page = render_explanation(explanation, title=HOSTILE, command="plumbline explain x", report="../../report.html")
    assert "<img src=x" not in page and "\u202e" not in page and "<script" not in page.lower()
    assert page.count("src=") == page.count('src="data:image/jpeg;base64,') + page.count("&lt;img src=x")
    assert "1 of 3 links are no longer" in page and "-0.2 without" in page and "../../report.html" in page
    assert (
        render_explanation(explanation, title=HOSTILE, command="plumbline explain x", report="../../report.html")
        == page
    )


def test_the_terminal_says_what_is_gone(explanation):
    console = Console(record=True, width=200, file=io.StringIO())
    print_explanation(explanation, console=console)
    told = console.export_text()
    assert [link.state for link in damaged(explanation.chain)] == ["gone"]
    assert "gone: dataset folder" in told and "One image is left out at a time." in told
    assert "[red]" in told and "\u202e" not in told and explanation.id in told
