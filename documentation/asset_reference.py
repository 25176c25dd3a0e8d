"""The page of every asset, from the definitions that Dagster loads: what it is, its partitions, sources and checks."""

import warnings
from collections.abc import Iterator
from inspect import cleandoc

import dagster as dg

from resources.places import Places

_OPENING = """# Assets

Generated from the definitions that Dagster loads, of `audit.yaml`: the same names, groups and texts as in the UI.
A check that blocks ends what follows it: a dataset that fails one is refused.
"""
_ORDER = (
    "sources", "datasets", "encoders", "embeddings", "logits", "metrics", "mitigation", "tracking", "slices",
    "generation", "language", "findings",
)  # fmt: skip


def asset_reference() -> str:
    """Return the page, in Markdown: a section a group, in the order of the work, an entry an asset."""
    graph = _graph()
    groups: dict[str, list[dg.AssetKey]] = {}
    for key in graph.toposorted_asset_keys:
        groups.setdefault(graph.get(key).group_name, []).append(key)
    sections = [_OPENING]
    for group in sorted(
        groups, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)
    ):
        sections += [f"## {group.capitalize()}\n", *(_entry(graph, key) for key in groups[group])]
    return "\n".join(sections)


def _graph():
    with warnings.catch_warnings():
        # Dagster calls observable sources and partitioned checks preview and beta: docs/decisions, 3.
        warnings.simplefilter("ignore")
        from orchestration.definitions import build_definitions

        return build_definitions(Places.standard()).resolve_asset_graph()


def _entry(graph, key: dg.AssetKey) -> str:
    node = graph.get(key)
    name = key.to_user_string()
    lines = [f"### {name}\n", f"{cleandoc(node.description or '')}\n"]
    lines += [f"- {fact}: {text}" for fact, text in _facts(node) if text]
    checks = [graph.get(check) for check in sorted(node.check_keys, key=lambda check: check.name)]
    for check in checks:
        effect = "blocks" if check.blocking else "warns"
        lines.append(f"- check `{check.key.name}` ({effect}): {cleandoc(check.description or '')}")
    return "\n".join([*lines, ""])


def _facts(node) -> Iterator[tuple[str, str]]:
    kind = "observed" if node.is_observable else "computed"
    yield "it is", kind if node.code_version is None else f"{kind}, version {node.code_version}"
    yield "one partition is", _partition(node.partitions_def)
    yield "made from", _links(node.parent_keys)
    yield "goes into", _links(node.child_keys)
    yield "written with", ", ".join(sorted(node.kinds))
    yield "waits for the pool", ", ".join(sorted(node.pools or ()))


def _partition(definition: dg.PartitionsDefinition | None) -> str:
    if definition is None:
        return "the whole audit"
    names = getattr(definition, "partition_dimension_names", None) or [definition.name]
    return " × ".join(f"`{name}`" for name in names)


def _links(keys) -> str:
    return ", ".join(f"[`{name}`](#{name})" for name in sorted(key.to_user_string() for key in keys))
