"""A page: one self-contained HTML file that works offline, under a policy that runs no script but ours.

`page_html` is what the report, the comparison of audits and the explanation of a number are made with. Every text that
comes from outside is escaped, and its unseen characters are shown. Charts are Vega-Lite specifications that
`report.js` draws when a reader gets to them.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from plumbline.report.numbers import count
from plumbline.report.payload import data_element, json_bytes, library, packed
from plumbline.report.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

    from plumbline.report.charts.chart import Chart

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
