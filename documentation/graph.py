"""The graph of assets as one picture for the documentation, drawn from the definitions that Dagster loads.

`python -m documentation.graph` draws it again; `make screenshots` does so too.
"""

import textwrap
from dataclasses import dataclass
from xml.sax.saxutils import escape

import networkx as nx

from documentation.asset_reference import asset_graph, assets_by_group, partition_of
from resources.checkout import PROJECT

PICTURE = PROJECT / "docs" / "images" / "graph.svg"

_LANES = {
    "sources": 1, "datasets": 1.5, "encoders": 0, "embeddings": 1, "slices": 2, "logits": 0.5, "generation": 2,
    "metrics": 0, "mitigation": 1, "language": 2, "tracking": 0.5, "findings": 1,
}  # fmt: skip
"""Group -> where its middle is from left to right, so that no arrow runs through a box; rows follow from the graph."""
_COLOURS = {
    "sources": "#e9e9e9", "datasets": "#dbe9f6", "encoders": "#dbe9f6", "slices": "#dbe9f6", "embeddings": "#e0f0dc",
    "logits": "#e0f0dc", "generation": "#e0f0dc", "metrics": "#fdeccd", "mitigation": "#fdeccd",
    "language": "#fdeccd", "tracking": "#ece2f2", "findings": "#ece2f2",
}  # fmt: skip
_LANE, _WIDTH, _GAP, _LINE, _HEAD = 228, 214, 24, 13, 29
"""Pixels: between lanes, of a box, between rows, of a line of names, and of what stands above them."""
_LETTERS = 38
_MARK = (
    '<marker id="end" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto"><path d="M0 0 9 4 0 8z"/>'
    "</marker>"
)
_STYLE = (
    "text{font-family:'DejaVu Sans',Verdana,sans-serif;dominant-baseline:central;fill:#222;font-size:9px}"
    ".group{font-size:12px;font-weight:bold}.partition{font-size:8.5px;fill:#666;text-anchor:end}"
    "rect{stroke:#999;stroke-width:.8}line{stroke:#777;stroke-width:1.3;marker-end:url(#end)}marker{fill:#777}"
)


@dataclass(frozen=True)
class Box:
    """A group of assets with its place in pixels; y is from the top."""

    group: str
    lines: tuple[str, ...]
    partition: str
    middle: float
    top: float

    @property
    def bottom(self) -> float:
        """Return where it ends, in pixels from the top."""
        return self.top + _HEAD + _LINE * len(self.lines) + 6


def graph_picture() -> str:
    """Return the picture as SVG, the same for the same definitions."""
    arrows = group_arrows()
    boxes = _boxes(arrows)
    width, height = 2 * _LANE + _WIDTH + 8, max(box.bottom for box in boxes.values()) + 8
    left = -_WIDTH / 2 - 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} -4 {width:g} {height:g}" width="{width:g}">',
        f"<style>{_STYLE}</style><defs>{_MARK}</defs>",
        *(_arrow(boxes[above], boxes[below]) for above, below in arrows),
        *(part for box in boxes.values() for part in _drawn(box)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def group_arrows() -> list[tuple[str, str]]:
    """Return which group feeds which, without what follows from other arrows."""
    graph = asset_graph()
    feeds = nx.DiGraph()
    for key in graph.toposorted_asset_keys:
        node = graph.get(key)
        groups = {graph.get(parent).group_name for parent in node.parent_keys} - {node.group_name}
        feeds.add_edges_from((group, node.group_name) for group in groups)
    return sorted(nx.transitive_reduction(feeds).edges)


def _boxes(arrows: list[tuple[str, str]]) -> dict[str, Box]:
    """Return the box of each group, one row below the last group that feeds it."""
    graph = asset_graph()
    members = assets_by_group(graph)
    boxes: dict[str, Box] = {}
    top = 0.0
    for row in nx.topological_generations(nx.DiGraph(arrows)):
        for group in row:
            names = ", ".join(key.to_user_string() for key in members[group])
            partitions = {partition_of(graph.get(key)).replace("`", "") for key in members[group]}
            told = partitions.pop() if len(partitions) == 1 else "various"
            lines = tuple(textwrap.wrap(names, _LETTERS, break_long_words=False))
            boxes[group] = Box(group, lines, told, _LANES[group] * _LANE, top)
        top = max(boxes[group].bottom for group in row) + _GAP
    return boxes


def _drawn(box: Box) -> list[str]:
    left, colour = box.middle - _WIDTH / 2, _COLOURS[box.group]
    height = box.bottom - box.top
    lines = [
        f'<text x="{left + 8:g}" y="{box.top + _HEAD + _LINE * (index + 0.4):g}">{escape(line)}</text>'
        for index, line in enumerate(box.lines)
    ]
    top = box.top + 14
    return [
        f'<rect x="{left:g}" y="{box.top:g}" width="{_WIDTH}" height="{height:g}" rx="5" fill="{colour}"/>',
        f'<text class="group" x="{left + 8:g}" y="{top:g}">{escape(box.group)}</text>',
        f'<text class="partition" x="{left + _WIDTH - 8:g}" y="{top:g}">{escape(box.partition)}</text>',
        *lines,
    ]


def _arrow(above: Box, below: Box) -> str:
    return f'<line x1="{above.middle:g}" y1="{above.bottom:g}" x2="{below.middle:g}" y2="{below.top:g}"/>'


def draw_graph() -> None:
    """Write the picture, and print where."""
    PICTURE.write_text(graph_picture(), "utf-8")
    print(PICTURE)


if __name__ == "__main__":
    draw_graph()
