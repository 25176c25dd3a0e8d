"""The page of every asset, from the definitions that Dagster loads: what it is, its partitions, sources and checks."""

import warnings
from collections.abc import Iterator
from inspect import cleandoc

import dagster as dg

from resources.workspace import Workspace

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
    graph = asset_graph()
    sections = [_OPENING]
    for group, keys in assets_by_group(graph).items():
        sections += [f"## {group.capitalize()}\n", *(_entry(graph, key) for key in keys)]
    return "\n".join(sections)


def assets_by_group(graph) -> dict[str, list[dg.AssetKey]]:
    """Return group -> its assets, both in the order of the work."""
    groups: dict[str, list[dg.AssetKey]] = {}
    for key in graph.toposorted_asset_keys:
        groups.setdefault(graph.get(key).group_name, []).append(key)
    order = {name: index for index, name in enumerate(_ORDER)}
    return {group: groups[group] for group in sorted(groups, key=lambda name: (order.get(name, len(order)), name))}


def asset_graph():
    """Return the graph of `audit.yaml` as Dagster resolves it."""
    with warnings.catch_warnings():
        # Dagster calls observable sources and partitioned checks preview and beta: docs/decisions, 3.
        warnings.simplefilter("ignore")
        from orchestration.definitions import build_definitions

        return build_definitions(Workspace.standard()).resolve_asset_graph()


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
    declared = (node.code_version or "").isdecimal()
    yield "it is", f"{kind}, version {node.code_version}" if declared else kind
    yield "one partition is", partition_of(node)
    yield "made from", _links(node.parent_keys)
    yield "goes into", _links(node.child_keys)
    yield "written with", ", ".join(sorted(node.kinds))
    yield "waits for the pool", ", ".join(sorted(node.pools or ()))


def partition_of(node) -> str:
    """Return what one partition of an asset is, in Markdown."""
    definition = node.partitions_def
    if definition is None:
        return "the whole audit"
    names = getattr(definition, "partition_dimension_names", None) or [definition.name]
    return " × ".join(f"`{name}`" for name in names)


def _links(keys) -> str:
    return ", ".join(f"[`{name}`](#{name})" for name in sorted(key.to_user_string() for key in keys))
