"""Rows of a metric table that answer questions of the scorecard, written by hand."""

from plumbline.catalog.schema import metric_frame

SURE, UNSURE = {"p": 0.0005, "q": 0.004}, {"p": 0.5, "q": 0.6}


def answer(
    model, *, dataset="fairface", value=1.5, low=1.0, high=2.0, n=2000, attribute="race", groups=None,
    suite="crime", event="crime", **more,
):  # fmt: skip
    """Return the rows of one disparity in crime labels, or another event, and of the shares of its groups."""
    base = {
        "model": model, "dataset": dataset, "condition": "before", "statistic": "estimate", "suite": suite,
        "event": event, "attribute": attribute,
    }  # fmt: skip
    skew = base | {"metric": "max_skew", "definition": "mean_over_pairs", "ci_low": low, "ci_high": high, "n": n}
    shares = [
        base | {"metric": "outcome_proportion", "definition": "top1", "group": group, "value": share, "n": n // 2}
        for group, share in (groups or {"Black": 0.5, "White": 0.2}).items()
    ]
    return [skew | {"value": value} | SURE | more, *shares]


def spoken(model, metric="max_toxicity", *, value=0.2, statistic="mean", **more):
    """Return a row of what a generative model says of people of different race and gender."""
    base = {
        "model": model, "dataset": "faces", "condition": "before", "statistic": statistic, "suite": "generation",
        "attribute": "race_gender", "prompt": "characteristics", "metric": metric, "definition": "paper", "n": 40,
    }  # fmt: skip
    return [base | {"value": value, "ci_low": value / 2, "ci_high": 2 * value} | more]


def frame(*answers):
    """Return a metric table of some answers."""
    return metric_frame([row for rows in answers for row in rows])
