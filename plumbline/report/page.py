"""A page: one self-contained HTML file that works offline, under a policy that runs no script but ours.

`page_html` is what the report, the comparison of audits and the explanation of a number are made with. Every text that
comes from outside is escaped, and its unseen characters are shown. Charts are Vega-Lite specifications that
`report.js` draws when a reader gets to them. What that script reads (charts, the library that draws them, the table of
all numbers) is compressed (zlib) and in Base64, in a `<script>` of a type that no browser runs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from plumbline.catalog.schema import IDENTIFYING
from plumbline.metrics.evidence import states
from plumbline.report.numbers import count
from plumbline.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

    from plumbline.report.charts.chart import Chart

MOST_ROWS = 150_000
"""Rows of the metric table that a page holds: about 2 MB. Of a larger table, rows are left out."""
DIGITS = 3
"""Significant digits of the numbers in the page; `plumbline explain` and the exports have all."""
NUMBERS = ("value", "ci_low", "ci_high", "p", "q", "smallest_detectable")
LITTLE_ENDIAN = "<u4"


def packed(data: bytes) -> bytes:
    """Return bytes compressed (zlib)."""
    return zlib.compress(data, 9)


@cache
def library() -> bytes:
    """Return Vega, Vega-Lite and Vega-Embed as one script that defines `vegaEmbed`, compressed (zlib).

    It is `vl_convert.javascript_bundle()` of the pinned version, kept in a file, since making it takes seconds.
    """
    return (files("plumbline.report") / "templates" / "vega.js.zlib").read_bytes()


def json_bytes(value: object) -> bytes:
    """Return a value as JSON; NaN and infinities, which JSON has not, are refused."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


# --- The table of all numbers, as columns.


@dataclass(frozen=True)
class LeftOut:
    """A kind of rows that are not in the page, and how many."""

    kind: str
    rows: int


@dataclass(frozen=True)
class Numbers:
    """The metric table as a page holds it.

    Attributes
    ----------
    data : bytes
        See `columns`.
    rows, whole : int
        Rows in the page, and in the metric table.
    left_out : tuple of LeftOut
        Which rows are only in the metric table; empty where the page holds it whole.
    """

    data: bytes
    rows: int
    whole: int
    left_out: tuple[LeftOut, ...]


def all_numbers(table: pl.DataFrame, *, significance: float, most: int = MOST_ROWS) -> Numbers:
    """Return a metric table as the page holds it.

    Parameters
    ----------
    significance : float
        Level of `plumbline.metrics.evidence.states`.
    most : int
        Rows that are kept at most, where leaving out whole kinds of rows allows it.
    """
    kept, left_out = fewer(table, most)
    shown = kept.select(
        *IDENTIFYING, *NUMBERS, "n", "reason", states(kept, significance=significance).alias("evidence")
    )
    undefined = pl.col("value").is_null() | pl.col("value").is_nan()
    state = pl.when(undefined).then(pl.lit("undefined")).otherwise(pl.col("evidence").fill_null("not_tested"))
    return Numbers(columns(shown.with_columns(evidence=state)), kept.height, table.height, left_out)


def fewer(table: pl.DataFrame, most: int) -> tuple[pl.DataFrame, tuple[LeftOut, ...]]:
    """Leave out kinds of rows until `most` are left: first what only supports other rows, then what has no test.

    In this order: other statistics than estimates and means; estimates on the images that mitigations are judged on,
    without a mitigation; metrics without any test, the one with the most rows first; metrics with tests likewise. A
    kind goes as a whole, so that what a reader sees of a metric is all of it.
    """
    left_out: list[LeftOut] = []

    def leave_out(kind: str, chosen: pl.Expr) -> None:
        nonlocal table
        if table.height <= most:
            return
        kept = table.filter(~chosen)
        if kept.height < table.height:
            left_out.append(LeftOut(kind, table.height - kept.height))
            table = kept

    leave_out("other statistics than estimates and means", ~pl.col("statistic").is_in(["estimate", "mean"]))
    leave_out("estimates before a mitigation, on its test images", pl.col("condition") == "before_test_rows")
    metrics = table.group_by("metric").agg(rows=pl.len(), tests=pl.col("p").is_finite().sum() > 0)
    for metric in metrics.sort("tests", "rows", "metric", descending=[False, True, False])["metric"]:
        leave_out(metric, pl.col("metric") == metric)
    return table, tuple(left_out)


def columns(table: pl.DataFrame) -> bytes:
    """Return a frame as columns of codes into their distinct values, ascending, which compress well.

    Four bytes give the length of a JSON header `{"rows": ..., "columns": [{"name", "values", "bytes"}, ...]}`; then
    come, of every column, the lowest bytes of all codes, then the next ones. A missing value is null and comes first;
    NaN is missing as well. Floats have `DIGITS` significant digits.
    """
    described, planes = [], []
    for series in table.get_columns():
        values, codes = _coded(series)
        width = max(1, (max(len(values) - 1, 0).bit_length() + 7) // 8)
        described.append({"name": series.name, "values": values, "bytes": width})
        planes += [codes.view(np.uint8)[at::4].tobytes() for at in range(width)]
    header = json_bytes({"rows": table.height, "columns": described})
    return len(header).to_bytes(4, "little") + header + b"".join(planes)


def _coded(series: pl.Series) -> tuple[list[str | float | None], np.ndarray]:
    if series.dtype.is_float():
        series = series.round_sig_figs(DIGITS).fill_nan(None).replace([float("inf"), float("-inf")], [None, None])
    distinct = series.unique().sort(nulls_last=False)
    order = pl.DataFrame({"value": distinct, "code": np.arange(len(distinct), dtype=np.uint32)})
    coded = series.to_frame("value").join(order, on="value", how="left", nulls_equal=True, maintain_order="left")
    return distinct.to_list(), coded["code"].to_numpy().astype(LITTLE_ENDIAN)


def data_element(name: str, compressed: bytes) -> str:
    """Return compressed bytes as an element that a browser neither shows nor runs: Base64 has no mark-up."""
    text = base64.b64encode(compressed).decode("ascii")
    return f'<script type="application/octet-stream" id="{name}">{text}</script>'


LONGEST_TEXT = 2000
LONGEST_CELL = 240


class Drawings:
    """The charts that a page shows; one that is placed twice is in the page once."""

    def __init__(self) -> None:
        self.charts: dict[str, Chart] = {}
        self.places = 0

    def place(self, chart: Chart) -> str:
        """Note that a chart is placed, and return an id for its title."""
        self.charts[chart.name] = chart
        self.places += 1
        return f"chart-{self.places}"

    @property
    def payload(self) -> bytes:
        """Return the specifications, with the theme that all share."""
        from plumbline.report.charts.chart import THEME

        return json_bytes({"config": THEME, "specs": {name: chart.spec for name, chart in self.charts.items()}})


def page_html(template: str | Template, *, title: str, data: Mapping[str, bytes] | None = None, **context: Any) -> str:
    """Return a page.

    Parameters
    ----------
    template : str or Template
        Of the body: a file of `templates`, or a template of `environment()`.
    title : str
        Of the window.
    data : mapping of str to bytes
        What the script reads besides charts, by the id of the element that holds it; compressed here.
    context : dict
        What the template is rendered with.
    """
    drawings = Drawings()
    if isinstance(template, str):
        template = environment().get_template(template)
    body = template.render(drawings=drawings, **context)
    elements = {name: packed(content) for name, content in (data or {}).items()}
    if drawings.charts:
        elements |= {"charts": packed(drawings.payload), "library": library()}
    scripted, style = bool(elements), resource("report.css")
    allowed = [_hash(resource("report.js").encode())] if scripted else []
    allowed += [_hash(zlib.decompress(library()))] if drawings.charts else []
    policy = ["default-src 'none'", f"style-src {_hash(style.encode())}", "img-src data:", "base-uri 'none'"]
    policy += ["form-action 'none'", *([f"script-src {' '.join(allowed)}"] if allowed else [])]
    shell = environment().get_template("page.html.jinja")
    return shell.render(
        title=title,
        policy=_ours("; ".join(policy)),
        style=_ours(style),
        body=_ours(body),
        elements=[_ours(data_element(name, content)) for name, content in elements.items()],
        script=_ours(resource("report.js")) if scripted else None,
    )


@cache
def resource(name: str) -> str:
    """Return a file of `templates` as text."""
    return (files("plumbline.report") / "templates" / name).read_text("utf-8")


def _hash(content: bytes) -> str:
    """Return bytes as a content security policy names them."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


def _ours(text: str) -> Markup:
    """Return text that is mark-up of our own, and not escaped."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704


@cache
def environment() -> Environment:
    """Return what pages are rendered with: every text is escaped, and its unseen characters are shown."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(resource),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Data addresses are Base64 of our own, longer than any text that is shown.
    templates.filters["picture_source"] = _ours
    templates.filters["counted"] = count
    templates.filters["shortened"] = lambda cell: visible(cell, longest=LONGEST_CELL)
    return templates


def _finalize(value: Any) -> Any:
    from markupsafe import Markup

    return value if isinstance(value, Markup) else visible(value, longest=LONGEST_TEXT)
