"""What a chart draws, read back from its specification; and what holds for every specification."""

import altair as alt

ALLOWED = ("rows[datum.value]", "headings[datum.value]", "panels[datum.value]", "paper")
"""All that charts may have: names by place, and the paper, looked up in `params`, which are values."""
MARKS = ("filled", "hollow", "barred")
_EXPRESSIONS = {"labelExpr", "expr", "signal", "calculate", "update", "test", "filter"}


def records(chart):
    """Return all records of a chart's data."""
    found = []

    def walk(part):
        if isinstance(part, dict):
            found.extend(part.get("data", {}).get("values", []) if isinstance(part.get("data"), dict) else [])
            for key, value in part.items():
                if key != "data":
                    walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(chart.spec)
    return found


def drawn(chart, *columns):
    """Return the records that have one of some columns: those of estimates, without names."""
    return [record for record in records(chart) if any(name in record for name in columns or MARKS)]


def values(chart, *columns):
    """Return the values in some columns, those of estimates without names."""
    return [record[name] for record in records(chart) for name in columns or MARKS if name in record]


def names(chart, which="rows"):
    """Return the names of rows or panels of a chart."""
    return next(param["value"] for param in chart.spec["params"] if param["name"] == which)


def valid(chart):
    """Hold a chart against Altair's schema, and its expressions against those that there may be."""
    alt.Chart.from_dict(_with_few_records(chart.spec))

    def walk(part):
        if isinstance(part, dict):
            for key, value in part.items():
                if key in _EXPRESSIONS and isinstance(value, str):
                    assert value in ALLOWED
                if key not in ("values", "datasets"):
                    walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk({key: value for key, value in chart.spec.items() if key != "params"})
    return True


def _with_few_records(part):
    """Return a specification with three records a source: the schema says nothing of more."""
    if isinstance(part, dict):
        return {
            key: value[:3] if key == "values" and part.keys() == {"values"} else _with_few_records(value)
            for key, value in part.items()
        }
    return [_with_few_records(value) for value in part] if isinstance(part, list) else part
