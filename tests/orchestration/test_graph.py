"""The asset graph as it is loaded: a change to it is a readable diff here."""

import os
import warnings
from pathlib import Path

import dagster as dg
import pytest

from orchestration.definitions import build_definitions
from resources.workspace import Workspace

GRAPH = Path(__file__).parent / "graph.txt"


@pytest.fixture(scope="module")
def definitions():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build_definitions(Workspace.from_environment())


def drawn(definitions):
    """One line an asset: group, name, partitions, what it depends on, its checks."""
    graph = definitions.resolve_asset_graph()
    lines = []
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        partitions = {None: "-"}.get(node.partitions_def, type(node.partitions_def).__name__) if node else "-"
        if node.partitions_def is not None:
            dimensions = getattr(node.partitions_def, "partition_dimension_names", None)
            partitions = "|".join(dimensions) if dimensions else node.partitions_def.name
        parents = ", ".join(sorted(parent.to_user_string() for parent in node.parent_keys)) or "-"
        checks = ", ".join(sorted(check.name for check in node.check_keys)) or "-"
        lines.append(f"{node.group_name}: {key.to_user_string()} [{partitions}] <- {parents}; checks {checks}")
    return "\n".join(sorted(lines)) + "\n"


def test_the_definitions_load(definitions):
    dg.Definitions.validate_loadable(definitions)


def test_the_graph_is_the_one_that_was_reviewed(definitions):
    found = drawn(definitions)
    if os.environ.get("RENEW_GRAPH"):
        GRAPH.write_text(found, "utf-8")
    assert found == GRAPH.read_text("utf-8"), "if the change is meant: make graph, and read the diff"


def test_every_asset_tells_a_first_time_reader_what_it_is(definitions):
    graph = definitions.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description and len(node.description) > 60, key
        assert node.owners or node.group_name == "sources", key


def test_nothing_is_pickled(definitions):
    from plumbline.errors import StorageError

    manager = definitions.resources["io_manager"]
    context = dg.build_output_context(asset_key=dg.AssetKey("x"))
    manager.handle_output(context, None)
    with pytest.raises(StorageError, match="not pickled"):
        manager.handle_output(context, 1)
