"""The explanation of one row: its prompts, the images that move it, its chain back to the sources, and its page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from plumbline.catalog.schema import IDENTIFYING, row_id, row_ids
from plumbline.catalog.suites import Candidate, Suite
from plumbline.digests import digest_bytes
from plumbline.errors import ConfigError, ImageRejected
from plumbline.images.decoding import decode, read_image_file
from plumbline.metrics.evidence import SIGNED, is_inverted, state
from plumbline.provenance.chain import STATES, Link, damaged
from plumbline.provenance.influence import Influence
from plumbline.report.numbers import named_interval, number, p_value
from plumbline.report.page import environment, page_html
from plumbline.report.sentences import row_in_words

if TYPE_CHECKING:
    from jinja2 import Template


def prompts_asked(suite: Suite, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rendered prompts of a suite: first those of the row's probe and event, in the order of the suite.

    Parameters
    ----------
    row : mapping
        A metric row; of its columns `event` and `probe` are read, where it has them.
    """
    event, probe = row.get("event"), row.get("probe")

    def distance(candidate: Candidate) -> int:
        of_event = event is None or _is_of_event(suite, candidate, event)
        named = probe is None or probe in (candidate.id, candidate.word, candidate.category.split(":")[0])
        return 0 if of_event and named else 1 if of_event and event else 2

    # Sorting keeps the order of the suite among equals.
    return tuple(candidate.text for candidate in sorted(suite.candidates, key=distance))


def _is_of_event(suite: Suite, candidate: Candidate, event: str) -> bool:
    if event in suite.scales:
        return candidate.word in suite.scales[event]
    if suite.events:
        # The mean over tasks is over the event of each.
        events = (event,) if event in suite.events else suite.skewed_events
        return any(candidate.category in suite.events[name] for name in events)
    if suite.family == "captions":
        # `negative_race_caption` is of the categories `scene:race:neg`.
        _, attribute, side = candidate.category.split(":")
        return side == "neg" and event == f"negative_{attribute}_caption"
    return candidate.category == event or candidate.category.startswith(f"{event}:")


# --- Everything that explains one number, and which row of a metric table a person means.

_SIDE = 112
_CANDIDATES = 12
_NOTHING = "none"
_SHORTEST = 6


@dataclass(frozen=True)
class Thumbnail:
    """One image as shown: `source` is a data URL of a small JPEG, or None with the cause in `missing`."""

    image_id: str
    path: str
    source: str | None
    missing: str = ""


@dataclass(frozen=True)
class Explanation:
    """Where a number comes from.

    Attributes
    ----------
    row : mapping
        The metric row.
    chain : tuple of Link
        From the metric table back to the sources.
    influence : Influence
    thumbnails : mapping of str to Thumbnail
        By sha256 of the image.
    subset : str
        Which images of the dataset its suite is asked about, in words; empty where it is asked about all.
    """

    row: Mapping[str, Any]
    chain: tuple[Link, ...]
    influence: Influence
    thumbnails: Mapping[str, Thumbnail] = field(default_factory=dict)
    subset: str = ""

    @property
    def id(self) -> str:
        """Return the name of the row."""
        return row_id(self.row)

    @property
    def measured(self) -> dict[str, str]:
        """Return what the row measures: its columns that are not null, and which images it is of."""
        measured = {name: str(self.row[name]) for name in IDENTIFYING if self.row[name] is not None}
        return {**measured, **({"images": self.subset} if self.subset else {})}


def find_row(table: pl.DataFrame, name: str | None, filters: Mapping[str, str]) -> dict[str, Any]:
    """Return the one row that matches a name and filters.

    Parameters
    ----------
    name : str, optional
        The name of the row, or its first six or more digits.
    filters : mapping of str to str
        Column -> value that it must have, `none` for nothing; together they must fit one row.

    Raises
    ------
    ConfigError
        If none or several rows fit; some of them are then listed.
    """
    rows = table
    for column, value in filters.items():
        text = pl.col(column).cast(pl.String)
        rows = rows.filter((text == value) | (text.is_null() if value == _NOTHING else pl.lit(False)))
    if name is not None:
        if len(name) < _SHORTEST:
            raise ConfigError(
                "the name of a row is too short", found=name, expected=f"{_SHORTEST} or more of its digits"
            )
        rows = rows.filter(row_ids(rows).str.starts_with(name.lower()))
    if rows.height == 1:
        return rows.to_dicts()[0]
    filters_text = " ".join([*filter(None, [name]), *(f"--{column} {value!r}" for column, value in filters.items())])
    if not rows.height:
        raise ConfigError(
            "no row of the metric table fits",
            found=filters_text or "no name and no filter",
            expected="a name that the report shows, or filters such as --metric max_skew --model ID --dataset ID",
        )
    differing = [column for column in IDENTIFYING if rows[column].n_unique() > 1]
    listed = [_candidate(row, differing) for row in rows.head(_CANDIDATES).to_dicts()]
    more = f"\n  and {rows.height - _CANDIDATES} more" if rows.height > _CANDIDATES else ""
    raise ConfigError(
        f"{rows.height} rows of the metric table fit",
        found=filters_text or "no name and no filter",
        expected="one row; take a name, or filter by " + ", ".join(differing) + ":\n  " + "\n  ".join(listed) + more,
    )


def _candidate(row: Mapping[str, Any], differing: list[str]) -> str:
    differences = ", ".join(f"{column}={_NOTHING if row[column] is None else row[column]}" for column in differing)
    return f"{row_id(row)}  {differences}"


def thumbnail(path: Path, image_id: str, shown: str) -> Thumbnail:
    """Return a thumbnail of a recorded image, or the reason for its absence: it is gone, or its bytes have changed."""
    try:
        data = read_image_file(path)
        if digest_bytes(data) != image_id:
            return Thumbnail(image_id, shown, None, "changed since: it is no longer the image that was recorded")
        picture = decode(data)
    except ImageRejected as error:
        missing = "gone: the file is not there any more" if error.code == "missing_file" else error.what
        return Thumbnail(image_id, shown, None, missing)
    picture.thumbnail((_SIDE, _SIDE))
    kept = io.BytesIO()
    picture.save(kept, "JPEG", quality=80)
    return Thumbnail(image_id, shown, "data:image/jpeg;base64," + base64.b64encode(kept.getvalue()).decode())


# --- The explanation of a number as one HTML file that works offline, in the style of the report.


def render_explanation(explanation: Explanation, *, title: str, command: str, report: str | None = None) -> str:
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
    return page_html(
        _template(),
        title=f"{explanation.row['metric']} {explanation.id}",
        it=explanation,
        audit=title,
        command=command,
        report=report,
        lost=damaged(explanation.chain),
        states=STATES,
        estimate=estimate_text(explanation.row),
        told=row_in_words(dict(explanation.row)),
        change=change_text,
        number=number,
    )


def estimate_text(row: Any) -> str:
    """Return value, interval, p, q and n of a row in words; of no evidence what would have been found."""
    if row["value"] is None or not math.isfinite(row["value"]):
        return f"undefined: {row['reason'] or 'no reason was recorded'}"
    parts = [named_interval(row["ci_low"], row["ci_high"])]
    parts += [p_value(row[name], name) for name in ("p", "q") if row[name] is not None and math.isfinite(row[name])]
    parts += [f"n = {row['n']:,}"] if row["n"] is not None else []
    parts += [row["reason"]] if row["reason"] else []
    estimate = f"{number(row['value'])} ({'; '.join(parts)})"
    evidence = state(row)
    if evidence in ("evidence", None):
        return estimate
    if evidence == "evidence_of_none":
        return f"{estimate}; evidence of no difference beyond the margin."
    least = row["smallest_detectable"]
    known = least is not None and math.isfinite(least)
    below = row["metric"] in SIGNED and row["value"] < 0
    beyond = "less" if below or is_inverted(row["metric"]) else "more"
    power = f" Detectable with 80% power: {number(-least if below else least)} or {beyond}." if known else ""
    return f"{estimate}; no evidence of a difference.{power}"


def change_text(change: float) -> str:
    """Return a change with its sign."""
    return "undefined without" if math.isnan(change) else f"{change:+.4g}"


@cache
def _template() -> Template:
    source = (files("plumbline.provenance") / "templates" / "explanation.html.jinja").read_text("utf-8")
    return environment().from_string(source)
