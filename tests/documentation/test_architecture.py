"""The page of the house is that of the code."""

from itertools import pairwise

import networkx as nx

from documentation.architecture import PAGE, STEPS, architecture_page
from documentation.asset_reference import asset_graph


def test_the_page_is_that_of_the_code():
    # After a change of a package or a step: python -m documentation.architecture
    assert PAGE.read_text("utf-8") == architecture_page()


def test_each_asset_of_the_way_is_computed_from_the_one_before():
    graph = asset_graph()
    feeds = nx.DiGraph(
        (parent.to_user_string(), key.to_user_string())
        for key in graph.toposorted_asset_keys
        for parent in graph.get(key).parent_keys
    )
    assets = list(dict.fromkeys(step.asset for step in STEPS))
    assert assets[0] == "dataset_folder" and assets[-1] == "audit_report"
    assert all(nx.has_path(feeds, before, after) for before, after in pairwise(assets))
