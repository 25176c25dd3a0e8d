"""The page of every metric, from the registries: what it says, formula, source and traits."""

import math
from collections.abc import Iterator

from plumbline.language.registry import LANGUAGE_FAMILIES
from plumbline.metrics.family import Family, Traits, family_descriptions
from plumbline.metrics.registry import FAMILIES, TEXT_SPACE

_OPENING = """# Metrics

Generated from the table `plumbline/catalog/metrics.yaml` and the registries `plumbline.metrics.registry` and
`plumbline.language.registry`. What the table declares of a metric the contract tests prove
(`tests/metrics/test_contracts.py`, `tests/language/test_language_contracts.py`).

Names in parentheses within a formula are values of the column `definition`. Undefined is NaN with a reason, never 0.
How intervals, p and q are made is in [The statistics](../statistics.md). Without an entry of their own are differences
of these: `macro_accuracy_gain` is `macro_accuracy` after a logit adjustment minus before it, and `bias_transfer` holds
what every mitigation changes, also in `zero_shot_accuracy`, `retrieval_recall` and `retrieval_r_precision`. Of the
image-text pairs that an audit names under `retrieval`, `retrieval_recall` is recall@k before and after each mitigation,
and `retrieval_recall_gain` after minus before (`plumbline.mitigations.retrieval`).
"""
_EMPTY = {"nan": "has no value (NaN)", "left_out": "is left out"}
_UNDER = {None: "changes it", "invariant": "changes nothing", "equivariant": "does the same to it"}
_BY_GROUP = {"scalar": "one value over all groups", "by_group": "one value a group"}


def metric_reference() -> str:
    """Return the page, in Markdown: a section a family, an entry a metric."""
    return "\n".join([_OPENING, *_encoder_families(), *_language_families()])


def _encoder_families() -> Iterator[str]:
    for family in FAMILIES.values():
        yield _family(family, f"Suites of prompts: {_codes(family.needs)}.")
        yield from map(_metric, family.about.metrics)
    about = family_descriptions()[TEXT_SPACE]
    yield f"## {about.title}\n\n{about.description} Asset [`{TEXT_SPACE}`](assets.md#{TEXT_SPACE}).\n"
    yield from map(_metric, about.metrics)


def _language_families() -> Iterator[str]:
    for family in LANGUAGE_FAMILIES.values():
        tables = f" Further tables: {_codes(family.tables)}." if family.tables else ""
        yield _family(family, f"Needs {', '.join(family.needs)}.{tables}")
        yield from map(_language_metric, family.about.metrics)


def _family(family: Family, needs: str) -> str:
    asset = f"Asset [`{family.name}`](assets.md#{family.name})."
    return f"## {family.about.title}\n\n{family.about.description}\n\n{asset} {needs}\n"


def _metric(traits: Traits) -> str:
    return _entry(
        traits,
        computed=f"`{traits.function}`",
        values=f"{_range(traits.bounds)}, {_BY_GROUP[traits.shape]}",
        **{
            "groups that are answered alike give": _alike(traits),
            "a group without images": _EMPTY[traits.empty_group],
            "equal responses": traits.ties,
            "multiplying all responses": _UNDER[traits.scale],
            "adding to all responses": _UNDER[traits.shift],
        },
    )


def _language_metric(traits: Traits) -> str:
    return _entry(
        traits,
        values=f"{_range(traits.bounds)}, {traits.unit}",
        **{"groups that are spoken of alike give": _alike(traits)},
    )


def _entry(traits: Traits, **facts: str) -> str:
    listed = {"source": traits.source, **facts, "definition in headlines": _codes([traits.headline or ""])}
    lines = [f"- {name}: {fact}" for name, fact in listed.items() if fact]
    formula = traits.formula.replace("; ", ";\n")
    return "\n".join([f"### {traits.name}\n", f"{traits.meaning}\n", f"```text\n{formula}\n```\n", *lines, ""])


def _alike(traits: Traits) -> str:
    if traits.when_identical is None:
        return ""
    return "the same value for each" if traits.when_identical == "equal" else _number(traits.when_identical)


def _codes(names) -> str:
    return ", ".join(f"`{name}`" for name in names if name)


def _range(bounds: tuple[float, float]) -> str:
    return f"{_number(bounds[0])} to {_number(bounds[1])}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{value:,g}".replace("inf", "∞").replace("-", "−")
