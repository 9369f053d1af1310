"""A matplotlib figure as SVG inside a page: the page's fonts and colours, and words under the pointer.

A figure is drawn in colours that stand for CSS variables, `colour("ink")`, `colour("s0")`. matplotlib writes
them as they are; here they become `var(--ink)`, which is light or dark as the viewer is. `colour("hatch0")`
is the page's hatch in the colour "s0".
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

VARIABLES = ("ink", "quiet", "line", "page", *(f"s{i}" for i in range(10)))
HATCHES = tuple(f"hatch{i}" for i in range(10))  # page.html.j2
PAINTS = {name: f"var(--{name})" for name in VARIABLES} | {name: f"url(#{name})" for name in HATCHES}
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
PLACES = {"d", "x", "y", "width", "height", "transform"}  # a tenth of a pixel is enough for them
DEFAULTS = {"fill": "var(--ink)", "font-size": "11"}  # of the texts in a picture
PLAIN = ("fill: var(--ink)", "font-size: 11px", "font-family", "font-weight: 400", "stroke-linecap")
KEPT = {"clipPath", "path"}  # elements whose id something refers to


def colour(paint: str) -> str:
    """The colour that stands for one of PAINTS while matplotlib draws."""
    return f"#fa9e{list(PAINTS).index(paint):02x}"


# What matplotlib must be told before anything is drawn (matplotlib.rc_context). Sizes are CSS pixels.
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fagen",
    "font.size": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.linewidth": 0.6,
    "axes.linewidth": 0.8,
    "text.color": colour("ink"),
    "axes.labelcolor": colour("quiet"),
    "axes.edgecolor": colour("quiet"),
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": colour("quiet"),
    "ytick.color": colour("quiet"),
    "grid.color": colour("line"),
    "text.parse_math": False,
}


def inline(figure: Any, name: str, titles: Mapping[str, str] | None = None) -> str:
    """Markup of a figure, made with SETTINGS; one inch of it is 72 CSS pixels.

    `name` must be another for every figure of a page. `titles` are the words under the pointer, by the gid of
    what they are about. All texts are escaped.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    root = ElementTree.fromstring(written.getvalue())
    for parent in list(root.iter()):
        for child in [each for each in parent if each.tag in (f"{SVG}style", f"{SVG}metadata")]:
            parent.remove(child)
    for element in root.iter():
        _adapt(element, name, titles or {})
    _thin(root)
    _, _, width, height = root.get("viewBox", "0 0 0 0").split()
    attributes = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    root.attrib = attributes | {"role": "img", "stroke-linejoin": "round"} | DEFAULTS
    text = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r">\s+<", "><", text).replace(" />", "/>")


def _adapt(element: ElementTree.Element, name: str, titles: Mapping[str, str]) -> None:
    """Drop namespaces and ids that nothing refers to; colours, fonts and numbers as a page has them."""
    element.tag = element.tag.removeprefix(SVG)
    own = element.attrib
    if LINK in own:
        own["href"] = f"#{name}-{own.pop(LINK)[1:]}"
    identity = own.pop("id", None)
    if identity and element.tag in KEPT:
        own["id"] = f"{name}-{identity}"
    if own.get("transform", "").startswith("rotate(-0 "):
        del own["transform"]
    for key, value in own.items():
        value = value.replace("url(#", f"url(#{name}-")
        value = re.sub("#fa9e([0-9a-f]{2})", lambda found: list(PAINTS.values())[int(found[1], 16)], value)
        if key == "style":
            value = _style(value)
        if key in PLACES:
            value = re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 1):g}", value)
            value = re.sub(r"\s*([A-Za-z]|\s)\s*", r"\1", value).strip()
        own[key] = value
    if "stroke: var(--line)" in own.get("style", ""):
        own.pop("clip-path", None)  # grid lines end where the axes do
    if identity and identity in titles:
        title = ElementTree.Element("title")
        title.text = titles[identity]
        element.insert(0, title)


def _style(value: str) -> str:
    """Without a font's family, which is the page's, and without what is so anyway."""
    value = re.sub(r"font: (?:(\w+) )?([\d.]+)px [^;]*", r"font-size: \2px; font-weight: \1", value)
    parts = (part.strip() for part in value.split(";"))
    return "; ".join(part for part in parts if part and not part.startswith(PLAIN) and part[-1] != ":")


def _thin(element: ElementTree.Element) -> None:
    """Take out what draws nothing, and groups that only hold something else."""
    for place, child in reversed(list(enumerate(element))):
        _thin(child)
        bare = child.tag == "g" and not child.attrib
        if (bare and not len(child)) or child.get("style") == "fill: none":
            element.remove(child)
        elif bare and child[0].tag != "title":
            element[place : place + 1] = list(child)
