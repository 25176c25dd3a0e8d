"""The explanation of a number as one HTML file that works offline, in the style of the report."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from plumbline.explain.chain import STATES, damaged
from plumbline.explain.explanation import Explanation
from plumbline.report.html import page_environment, page_style
from plumbline.report.numbers import interval, number, p_value

if TYPE_CHECKING:
    from jinja2 import Template


def render_explanation(
    explanation: Explanation, *, title: str, command: str, report: str | None = None
) -> str:
    """Return the explanation as a self-contained HTML document.

    Parameters
    ----------
    title : str
        Of the audit.
    command : str
        What makes this page again.
    report : str, optional
        Relative address of the report.
    """
    return _template().render(
        it=explanation,
        title=title,
        command=command,
        report=report,
        style=page_style(),
        lost=damaged(explanation.chain),
        states=STATES,
        estimate=estimate_text(explanation.row),
        change=change_text,
        number=number,
    )


def estimate_text(row: Any) -> str:
    """Return value, interval, p, q and n of a row in words."""
    if row["value"] is None or not math.isfinite(row["value"]):
        return f"undefined: {row['reason'] or 'no reason was recorded'}"
    parts = [f"interval {interval(row['ci_low'], row['ci_high'])}"]
    parts += [
        p_value(row[name], name) for name in ("p", "q") if row[name] is not None and math.isfinite(row[name])
    ]
    parts += [f"n = {row['n']:,}"] if row["n"] is not None else []
    parts += [row["reason"]] if row["reason"] else []
    return f"{number(row['value'])} ({'; '.join(parts)})"


def change_text(change: float) -> str:
    """Return a change with its sign."""
    return "undefined without" if math.isnan(change) else f"{change:+.4g}"


@cache
def _template() -> Template:
    source = (files("plumbline.explain") / "templates" / "explanation.html.jinja").read_text("utf-8")
    return page_environment().from_string(source)
