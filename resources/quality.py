"""Great Expectations: one validation a check, kept as JSON and as a page."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

import jinja2
import polars as pl
from upath import UPath

from plumbline.digests import digest_bytes
from plumbline.storage.files import commit_bytes
from resources.workspace import Workspace

_PAGES = jinja2.Environment(autoescape=True)
_HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{{ title }}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1d1d1f }
table { border-collapse: collapse }
th, td { text-align: left; vertical-align: top; padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid #ddd }
td { overflow-wrap: anywhere }
</style>
<h1>{{ title }}</h1>
"""
_RESULT = _PAGES.from_string(
    _HEAD
    + """<p><strong>{{ "Passed" if passed else "Failed" }}</strong>: {{ met }} of {{ expectations }} expectations met by
the table of {{ rows }} rows. <a href="../index.html">All checks</a></p>
<table><tr><th>Expectation<th>With<th>Met<th>Observed
{% for one in results %}<tr><td>{{ one.expectation | replace("_", " ") }}
<td>{{ one.with }}<td>{{ "yes" if one.met else "no" }}
<td>{{ one.observed }}
{% endfor %}</table></html>
"""
)
_INDEX = _PAGES.from_string(
    _HEAD
    + """<p>What Great Expectations found, newest first. Earlier results of a check stay here.</p>
<table><tr><th>Check<th>Result<th>Expectations met<th>Validated (UTC)
{% for one in results %}<tr><td><a href="{{ one.page }}">{{ one.name }}</a>
<td>{{ "passed" if one.passed else "failed" }}
<td>{{ one.met }} of {{ one.expectations }}<td>{{ one.when }}
{% endfor %}</table>
{% if damaged %}<p>Damaged, and not shown; each may be deleted: {{ damaged | join(", ") }}</p>{% endif %}</html>
"""
)
_SHOWN = ("name", "passed", "met", "expectations", "when")


@dataclass(frozen=True)
class Validation:
    """The outcome of one check.

    Attributes
    ----------
    passed : bool
    unmet : list of dict
        `expectation, on, observed`, one for every expectation that was not met.
    expectations : int
        How many were tested.
    docs : str
        Address of the page with these results.
    """

    passed: bool
    unmet: list[dict[str, str]]
    expectations: int
    docs: str


class Quality:
    """Runs validations; results and pages lie under `quality` of the home, each written whole or not at all."""

    def __init__(self, workspace: Workspace) -> None:
        self._folder = workspace.quality

    def validate(self, name: str, frame: pl.DataFrame, expectations: Callable[[Any], Sequence[Any]]) -> Validation:
        """Validate a frame and keep the result with a page of its own; see `index` for the page that leads there.

        Parameters
        ----------
        name : str
            Suite name, such as `fairface.label_balance`.
        expectations : callable
            Given `great_expectations.expectations`, returns the expectations. A callable, since importing the
            package takes seconds.
        """
        batch = _whole_frames()
        import great_expectations as gx

        suite = gx.ExpectationSuite(name=name, expectations=list(expectations(gx.expectations)))
        result = batch.get_batch(batch_parameters={"dataframe": frame.to_pandas()}).validate(suite)
        results = [_result(item) for item in result.results]
        facts = {
            "name": name,
            "passed": bool(result.success),
            "met": sum(one["met"] for one in results),
            "expectations": len(results),
            "rows": frame.height,
            "results": results,
        }
        # The same facts again are the same result: its page and its address stay.
        stem = f"{quote(name, safe='')}.{digest_bytes(json.dumps(facts, sort_keys=True).encode())[:12]}"
        page, kept = self._folder / "pages" / f"{stem}.html", self._folder / "results" / f"{stem}.json"
        commit_bytes(UPath(page), _RESULT.render(title=name, **facts).encode())
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        commit_bytes(UPath(kept), json.dumps({**facts, "when": when}, indent=1).encode())
        unmet = [
            {"expectation": one["expectation"], "on": one["on"], "observed": one["observed"]}
            for one in results
            if not one["met"]
        ]
        return Validation(facts["passed"], unmet, facts["expectations"], page.as_uri())

    def index(self) -> None:
        """Write the page that leads to all results, those of earlier facts included."""
        rows, damaged = [], []
        for path in sorted((self._folder / "results").glob("*.json")):
            try:
                result = json.loads(path.read_text("utf-8"))
                rows.append({key: result[key] for key in _SHOWN} | {"page": f"pages/{quote(path.stem)}.html"})
            except (OSError, ValueError, KeyError, TypeError):
                damaged.append(path.name)
        rows.sort(key=lambda row: (row["when"], row["name"]), reverse=True)
        commit_bytes(
            UPath(self._folder / "index.html"),
            _INDEX.render(title="Quality checks", results=rows, damaged=damaged).encode(),
        )


@cache
def _whole_frames() -> Any:
    """Return what takes a frame as a batch, in a context that keeps nothing on disk; made once a process."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    facts = context.data_sources.add_pandas("plumbline").add_dataframe_asset("facts")
    return facts.add_batch_definition_whole_dataframe("whole")


def _result(item: Any) -> dict[str, Any]:
    """Return one expectation with what was observed, as plain values."""
    config, result = item.expectation_config, item.to_json_dict()["result"]
    arguments = {key: value for key, value in config.kwargs.items() if key != "batch_id" and value is not None}
    observed = result.get("observed_value", result.get("partial_unexpected_list", item.exception_info))
    if isinstance(observed, list):
        observed = ", ".join(
            " and ".join(map(str, value)) if isinstance(value, list) else str(value) for value in observed[:5]
        )
    return {
        "expectation": config.type.removeprefix("expect_"),
        "on": ", ".join(str(value) for key, value in arguments.items() if key.startswith("column")),
        "with": ", ".join(f"{key} {value}" for key, value in arguments.items())[:500],
        "met": bool(item.success),
        "observed": str(observed)[:200],
    }
