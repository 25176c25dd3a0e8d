"""SVG as it can stand in a page: accessible, without script, address, date or stray ids, the same every time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from plumbline.report.visible import visible

_TIPS = "tips:"
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_MEASURED_WITH = " font-family: 'DejaVu Sans';"


def tips_id(tips: Sequence[str]) -> str:
    """Return the id by which `inline_svg` knows what to say of each mark, in drawing order."""
    return _TIPS + json.dumps([visible(tip) for tip in tips])


def inline_svg(raw: bytes, *, name: str, title: str, description: str) -> str:
    """Return what matplotlib wrote as one `<svg>` element: titled, scalable, no namespaces, styles, dates or stray ids.

    Parameters
    ----------
    name : str
        Prefixes every id, so that pictures of one page do not share any.
    """
    root = ET.fromstring(raw)  # noqa: S314 - our own output of a moment ago
    _plain_names(root)
    _drop(root, ("metadata", "style"))
    _insert_tips(root)
    _tidy_ids(root, name)
    _round(root)
    _prune(root)
    labelled = _labelled(root, name=name, title=title, description=description)
    return ET.tostring(labelled, encoding="unicode", short_empty_elements=True)


def _plain_names(root: ET.Element) -> None:
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for name in [n for n in element.attrib if "}" in n]:
            element.attrib[name.rpartition("}")[2]] = element.attrib.pop(name)


def _drop(root: ET.Element, tags: tuple[str, ...]) -> None:
    for parent in root.iter():
        for child in [c for c in parent if c.tag in tags]:
            parent.remove(child)


def _insert_tips(root: ET.Element) -> None:
    for group in root.iter("g"):
        gid = group.get("id", "")
        if not gid.startswith(_TIPS):
            continue
        tips = json.loads(gid.removeprefix(_TIPS))
        marks = list(group.iter("use")) or list(group.iter("path"))
        for mark in marks:
            _as_circle(mark)
        if len(marks) == len(tips):
            for mark, tip in zip(marks, tips):
                ET.SubElement(mark, "title").text = tip


def _as_circle(mark: ET.Element) -> None:
    # matplotlib writes a scattered disc as eight Bezier curves from its lowest point: ten times a circle's bytes.
    path = mark.attrib.get("d", "")
    if mark.tag != "path" or path.count("C") != 8:
        return
    ys = [float(y) for y in re.findall(r"[-\d.]+\s+([-\d.]+)", path)]
    x = float(path.split()[1])
    radius = (max(ys) - min(ys)) / 2
    del mark.attrib["d"]
    mark.tag = "circle"
    mark.attrib.update({"cx": f"{x:.2f}", "cy": f"{min(ys) + radius:.2f}", "r": f"{radius:.2f}"})


def _tidy_ids(root: ET.Element, prefix: str) -> None:
    used: set[str] = set()
    for element in root.iter():
        for value in element.attrib.values():
            used.update(re.findall(r"url\(#([^)]+)\)", value))
        if element.get("href", "").startswith("#"):
            used.add(element.attrib["href"][1:])
    names = {old: f"{prefix}-{number}" for number, old in enumerate(sorted(used))}
    for element in root.iter():
        if (own := element.get("id")) is not None:
            if own in names:
                element.set("id", names[own])
            else:
                del element.attrib["id"]
        if element.get("href", "").startswith("#"):
            element.set("href", "#" + names[element.attrib["href"][1:]])
        for name, value in element.attrib.items():
            if "url(#" in value:
                element.set(name, re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{names[m[1]]})", value))


def _round(root: ET.Element) -> None:
    for element in root.iter():
        for name in ("d", "x", "y", "width", "height", "transform", "style", "viewBox"):
            if name in element.attrib:
                element.set(name, _NUMBER.sub(_two_decimals, element.attrib[name]))
        if "d" in element.attrib:
            element.set("d", " ".join(element.attrib["d"].split()))
        if "style" in element.attrib:
            element.set("style", element.attrib["style"].replace(_MEASURED_WITH, ""))
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        element.tail = None
        if element.tag not in ("text", "title", "tspan"):
            element.text = None


def _prune(parent: ET.Element) -> None:
    for child in list(parent):
        _prune(child)
        if child.tag in ("g", "defs") and len(child) == 0:
            parent.remove(child)


def _two_decimals(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _labelled(root: ET.Element, *, name: str, title: str, description: str) -> ET.Element:
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    title_id, description_id = f"{name}-title", f"{name}-desc"
    root.attrib.update(
        {
            "class": "figure",
            "role": "img",
            "aria-labelledby": f"{title_id} {description_id}",
            "viewBox": f"0 0 {width} {height}",
            "style": f"max-width: {width}px",
        }
    )
    for place, (own_id, tag, text) in enumerate(
        ((title_id, "title", title), (description_id, "desc", description))
    ):
        element = ET.Element(tag, {"id": own_id})
        element.text = visible(text, longest=2000)
        root.insert(place, element)
    return root
