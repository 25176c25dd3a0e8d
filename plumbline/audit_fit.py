"""How the parts of an audit file fit together: names that exist, suites that a dataset can answer, models apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import InitErrorDetails

from plumbline.audit_part import unfit
from plumbline.suggestion import suggestion

if TYPE_CHECKING:
    from plumbline.audit import Audit

_BASE, _COMPOSITE = "trident", "trident_composite"
TRIDENT_SUITES = (_BASE, _COMPOSITE)
"""Suites of datasets that have a label set."""

SCENE_SUITES = ("pata_captions",)
"""Suites of datasets that have scenes."""


class _Named(NamedTuple):
    """A name that stands somewhere in the file, and the names that would be right there."""

    location: tuple[str | int, ...]
    name: str
    defined: tuple[str, ...]


def unfit_parts(audit: Audit) -> list[InitErrorDetails]:
    """Return every mistake of parts that are right by themselves and do not fit the others."""
    mistakes = [*_empty_choices(audit), *_undefined_names(audit), *_models_alike(audit)]
    # Cells are made of defined names only.
    return mistakes or [*_unfit_datasets(audit), *_composites_alone(audit)]


def _empty_choices(audit: Audit) -> Iterator[InitErrorDetails]:
    if audit.audit and not audit.encoders:
        yield unfit(("encoders",), {}, "at least one encoder: `audit` asks encoders, `generate` asks `lvlms`")
    for i, entry in enumerate(audit.audit):
        for key, defined in (("encoders", audit.encoders), ("datasets", audit.datasets)):
            if not getattr(entry, key):
                yield unfit(("audit", i, key), [], f"`all`, or at least one of {', '.join(defined)}")


def _undefined_names(audit: Audit) -> Iterator[InitErrorDetails]:
    for location, name, defined in (*_names_of_encoders(audit), *_names_of_generation(audit)):
        if name not in defined:
            yield unfit(location, name, f"one of {', '.join(defined)}{suggestion(name, defined)}")


def _names_of_encoders(audit: Audit) -> Iterator[_Named]:
    encoders = tuple(audit.encoders)
    if audit.labeller is not None:
        yield _Named(("labeller",), audit.labeller, encoders)
    defined = {
        "encoders": encoders,
        "datasets": tuple(audit.datasets),
        "mitigations": tuple(audit.mitigations),
    }
    for i, entry in enumerate(audit.audit):
        for key, names in defined.items():
            yield from _chosen(getattr(entry, key), ("audit", i, key), names)
    if audit.watch is not None:
        here = tuple(name for name, entry in audit.lvlms.items() if entry.address is not None)
        yield _Named(("watch", "like"), audit.watch.like, (*encoders, *here))


def _names_of_generation(audit: Audit) -> Iterator[_Named]:
    models, datasets = tuple(audit.lvlms), tuple(audit.datasets)
    for name, entry in audit.lvlms.items():
        if entry.twin:
            yield _Named(("lvlms", name, "twin"), entry.twin, models)
    for i, asked in enumerate(audit.generate):
        yield from _chosen(asked.lvlms, ("generate", i, "lvlms"), models)
        yield from _chosen(asked.datasets, ("generate", i, "datasets"), datasets)


def _chosen(
    names: str | tuple[str, ...], key: tuple[str | int, ...], defined: tuple[str, ...]
) -> list[_Named]:
    return [_Named((*key, j), name, defined) for j, name in enumerate(() if names == "all" else names)]


def _models_alike(audit: Audit) -> Iterator[InitErrorDetails]:
    """Say models that could be taken for another: of an encoder's id, or of one served name at other addresses."""
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, entry in audit.lvlms.items():
        if name in audit.encoders:
            yield unfit(("lvlms", name), name, "an id that no encoder has: both stand in one column")
        if entry.endpoint is None:
            continue
        known, urls = first.setdefault(entry.endpoint.model, (name, entry.endpoint.urls))
        if urls != entry.endpoint.urls:
            yield unfit(
                ("lvlms", name, "endpoint", "model"),
                entry.endpoint.model,
                f"a name that no other model is served under, as `{known}` is; or all addresses in one entry",
            )


def _unfit_datasets(audit: Audit) -> Iterator[InitErrorDetails]:
    needs = {
        **dict.fromkeys(TRIDENT_SUITES, ("the Trident suites need a label set", list(audit.class_sets))),
        **dict.fromkeys(SCENE_SUITES, ("captions of scenes need scenes", sorted(audit.with_scenes))),
    }
    for i, entry in enumerate(audit.audit):
        named = entry.datasets if entry.datasets != "all" and "suites" in entry.model_fields_set else ()
        for suite in (suite for suite in entry.suites if suite in needs):
            why, having = needs[suite]
            if lacking := [name for name in named if not audit.can_answer(name, suite)]:
                yield unfit(
                    ("audit", i, "suites", entry.suites.index(suite)),
                    suite,
                    f"suites of prompts alone for {', '.join(lacking)}: {why}, which {', '.join(having)} have",
                )


def _composites_alone(audit: Audit) -> Iterator[InitErrorDetails]:
    lacking = {cell for cell, suites in audit.cells.items() if _COMPOSITE in suites and _BASE not in suites}
    for i, entry in enumerate(audit.audit):
        if _COMPOSITE in entry.suites and lacking.intersection(audit.rectangle(entry)):
            yield unfit(
                ("audit", i, "suites", entry.suites.index(_COMPOSITE)),
                _COMPOSITE,
                f"`{_BASE}` beside it for the same datasets and encoders: alone it has no results",
            )
