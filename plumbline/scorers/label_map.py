"""Which output of a classifier is which scored attribute, and how its outputs become scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from plumbline.errors import ConfigError
from plumbline.tables.generation_schema import SCORED_ATTRIBUTES

Activation = Literal["sigmoid", "softmax"]


@cache
def known_labels() -> Mapping[str, tuple[str, ...]]:
    """Return the labels that are known to mean a scored attribute, by attribute."""
    content = yaml.safe_load((files("plumbline.scorers") / "labels.yaml").read_text("utf-8"))
    return {attribute: tuple(labels) for attribute, labels in content["labels"].items()}


def label_positions(
    labels: Sequence[str], wanted: Mapping[str, str] | None = None, *, where: object = None
) -> dict[str, int]:
    """Return the output of each scored attribute that a classifier has, in the order of `SCORED_ATTRIBUTES`.

    Parameters
    ----------
    labels : sequence of str
        The model's `id2label`, by position.
    wanted : mapping of str to str, optional
        Attribute -> label, and no others; by default found by the names of `labels.yaml`. Attributes without a
        counterpart are left out.
    where : object
        For messages.

    Raises
    ------
    ConfigError
        If the model has no label of a wanted name, two of it, or none that is known; lists the model's labels.
    """
    if wanted is None:
        found = {name: _position(labels, known) for name, known in known_labels().items()}
    else:
        found = {name: _position(labels, (label,)) for name, label in wanted.items()}
    there = {name: found[name] for name in SCORED_ATTRIBUTES if found.get(name) is not None}
    absent = sorted(set(wanted or ()) - set(there))
    if absent or not there:
        raise ConfigError(
            f"this classifier has no label `{wanted[absent[0]]}`"
            if wanted and absent
            else "no label of this classifier is known to mean a scored attribute",
            where=where,
            found="id2label: " + ", ".join(f"{i}: {label}" for i, label in enumerate(labels)),
            expected=f"labels for some of {', '.join(SCORED_ATTRIBUTES)}",
            hint="say which is which in the audit file, such as `labels: {toxicity: NAME}`",
        )
    return {name: position for name, position in there.items() if position is not None}


def activation_of(config: Mapping[str, Any], outputs: int, *, where: object = None) -> Activation:
    """Return how a classifier's outputs become scores, as its configuration says it.

    `function_to_apply` decides, else `problem_type`, else the number of outputs: one is a sigmoid, two are classes of
    which one holds.

    Raises
    ------
    ConfigError
        If it says neither and has more than two outputs, or is no classifier: guessing would give other scores.
    """
    said = config.get("function_to_apply")
    if said in ("sigmoid", "softmax"):
        return "sigmoid" if said == "sigmoid" else "softmax"
    kind = config.get("problem_type")
    if kind == "multi_label_classification" or (kind is None and outputs == 1):
        return "sigmoid"
    if outputs > 1 and (kind == "single_label_classification" or (kind is None and outputs == 2)):
        return "softmax"
    raise ConfigError(
        "the classifier's configuration does not say how its outputs become scores",
        where=where,
        found=f"problem_type: {kind}, {outputs} outputs",
        expected="problem_type: multi_label_classification or single_label_classification",
        hint="say `activation: sigmoid` (several labels may hold) or `softmax` (one holds) in the audit file",
    )


def _position(labels: Sequence[str], known: Sequence[str]) -> int | None:
    """Return the position of the one label of the first name that is there, None where none is."""
    plain = [_plain(label) for label in labels]
    for name in map(_plain, known):
        if name in plain:
            if plain.count(name) > 1:
                raise ConfigError(
                    "this classifier has two labels of one name",
                    found=", ".join(labels),
                    expected=f"one `{name}`",
                )
            return plain.index(name)
    return None


def _plain(label: str) -> str:
    return re.sub(r"[\s-]+", "_", label.strip().lower())
