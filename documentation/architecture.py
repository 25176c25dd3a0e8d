"""The page that shows the house: its packages, and the way of one image through them, from the code.

`python -m documentation.architecture` writes it again.
"""

import pkgutil
from importlib import import_module
from inspect import getdoc
from typing import NamedTuple

import plumbline
from resources.checkout import PROJECT

PAGE = PROJECT / "docs" / "architecture.md"


class Step(NamedTuple):
    """What an image is at one point of its way, the asset that computes it, and `module:name` of what does."""

    what: str
    asset: str
    place: str


STEPS = (
    Step("folder", "dataset_folder", "plumbline.datasets.ingestion:folder_digest"),
    Step("record", "records", "plumbline.datasets.ingestion:ingest"),
    Step("pixels", "image_embeddings", "plumbline.images.decoding:decode"),
    Step("embedding", "image_embeddings", "plumbline.encoders.embedding:embed_images"),
    Step("logit", "probe_logits", "plumbline.metrics.cell:SuiteLogits"),
    Step("event", "outcome_metrics", "plumbline.metrics.predictions:event_predictions"),
    Step("row", "outcome_metrics", "plumbline.metrics.outcomes:outcome_rows"),
    Step("table", "metric_table", "plumbline.metrics.registry:metric_table"),
    Step("finding", "audit_report", "plumbline.report.findings:findings"),
)
"""The way of one image to a finding on skew; other metrics part from it at the event."""

_APPLICATION = ("orchestration", "assets", "resources", "plumbline")
_OPENING = """# The house in one page

Written from the code by `python -m documentation.architecture`; a test compares them.

## Four layers

A layer imports from those below it only; import-linter holds that, and that the library knows neither Dagster, MLflow
nor Great Expectations.

"""
_WAY = """
## The way of one image

What an image is, the asset that computes it, and the function or class that does. [Assets](reference/assets.md) has
the whole graph.

"""
_REST = """
Beside the way: `config` says what is audited and `catalog` what is asked; `storage` keeps every table and array by its
content; `statistics` gives a row its interval and p-value; `mitigations` change texts or logits and are judged by the
same metrics; `generators`, `scorers` and `language` do for answers in words what `encoders` and `metrics` do for
logits; `provenance` goes the way back, from a row to the folder.
"""


_PLACES = """
## Where to look

| To change | Look in |
|---|---|
| what an interval or p is | `plumbline/statistics`: one idea a module |
| how p is corrected | `plumbline/statistics/multiplicity.py`; of findings `plumbline/report/findings.py` |
| what counts as evidence, and power | `plumbline/metrics/evidence.py` |
| a question of the scorecard | `QUESTIONS` in `plumbline/report/scorecard.py` |
| what is on the first page | `plumbline/report/front.py`, its findings `plumbline/report/findings.py` |
| the words of a reason | `plumbline/reasons.yaml` |
| which file is refused, in which words | `plumbline/images/decoding.py`; index lines: `plumbline/datasets/indexes.py` |
| keys of the audit file and their messages | `plumbline/config` |
| the digest of a checkpoint | `plumbline/checkpoints/folders.py`; with its settings `plumbline/encoders/encoder.py` |
| when a result is out of date | `plumbline/recording.py` notes what it read, `storage/builds.py` keeps that, \
`assets/up_to_date.py` compares; versions of code: `plumbline/provenance/code_versions.py` |
| what one audit computes, and in which order | `orchestration/audit_plan.py` |
"""


def architecture_page() -> str:
    """Return the page, in Markdown."""
    layers = [f"- `{name}`: {_sentence(name)}" for name in _APPLICATION]
    packages = sorted(
        f"| `{each.name}` | {_sentence(f'plumbline.{each.name}')} |"
        for each in pkgutil.iter_modules(plumbline.__path__)
        if each.ispkg
    )
    modules = sorted(f"`{each.name}`" for each in pkgutil.iter_modules(plumbline.__path__) if not each.ispkg)
    steps = [f"| {step.what} | `{step.asset}` | `{step.place}` | {_first_line(step)} |" for step in STEPS]
    return (
        _OPENING
        + "\n".join(layers)
        + "\n\n## The packages of the library\n\n| Package | What is in it |\n|---|---|\n"
        + "\n".join(packages)
        + f"\n\nModules that all of them share: {', '.join(modules)}.\n"
        + _WAY
        + " → ".join(f"**{step.what}**" for step in STEPS)
        + "\n\n| It is | Asset | Code | What that does |\n|---|---|---|---|\n"
        + "\n".join(steps)
        + "\n"
        + _REST
        + _PLACES
    )


def _sentence(module: str) -> str:
    """Return the first line of a module's docstring."""
    return str(import_module(module).__doc__).strip().partition("\n")[0]


def _first_line(step: Step) -> str:
    module, _, name = step.place.partition(":")
    return str(getdoc(getattr(import_module(module), name))).partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(architecture_page(), "utf-8")
    print(PAGE)
