"""The picture of the graph is that of the definitions."""

import re

from documentation.asset_reference import asset_graph
from documentation.graph import PICTURE, graph_picture, group_arrows


def test_the_picture_is_that_of_the_definitions():
    # After a change of the graph: python -m documentation.graph
    assert PICTURE.read_text("utf-8") == graph_picture()


def test_the_picture_names_every_asset_once():
    names = re.findall(r"[a-z_]+", " ".join(re.findall(r">([a-z_, ]+)</text>", graph_picture())))
    graph = asset_graph()
    assets = [key.to_user_string() for key in graph.toposorted_asset_keys]
    groups = {graph.get(key).group_name for key in graph.toposorted_asset_keys}
    # `datasets` is a group, `records` an asset: no asset has the name of a group.
    assert sorted(name for name in names if name in assets) == sorted(assets)
    assert groups <= set(names) and not groups & set(assets)


def test_an_arrow_that_follows_from_others_is_not_drawn():
    arrows = group_arrows()
    assert ("sources", "datasets") in arrows and ("datasets", "slices") in arrows
    assert ("datasets", "metrics") not in arrows
