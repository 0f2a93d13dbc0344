"""The workflow's rules as a drawing: Snakemake's own rule graph, laid out in layers from data at the top to the report at the bottom."""

import dataclasses
import functools
import html
import re

from recap_steam.report.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION

COLORS = {  # by what the name of a rule says
    "collect": SKY,
    "evaluate": SKY,
    "index": GREY,
    "cache": GREY,
    "returns": BLUE,
    "critic": BLUE,
    "values": BLUE,
    "member": GREEN,
    "ensemble": GREEN,
    "scores": GREEN,
    "threshold": ORANGE,
    "advantages": ORANGE,
    "policy": VERMILION,
    "norm_stats": VERMILION,
}
BOX, GAP, LAYER, MARGIN = (150, 46), 24, 96, 10  # pixels: box (width, height), between boxes, from layer to layer, around
SWEEPS = 8  # of ordering the layers

Edges = set[tuple[str, str]]  # (rule, rule that reads from it)


@dataclasses.dataclass(frozen=True)
class RuleGraph:
    """Rules in the order of Snakemake's listing, without those that only name targets."""

    rules: list[str]
    edges: Edges


def read_rule_graph(dot: str, targets: tuple[str, ...] = ("all",)) -> RuleGraph:
    """What ``snakemake --rulegraph`` prints."""
    names = dict(re.findall(r'^\s*(\d+)\[label = "([^"]+)"', dot, re.MULTILINE))
    edges = {(names[start], names[end]) for start, end in re.findall(r"^\s*(\d+) -> (\d+)", dot, re.MULTILINE)}
    kept = [rule for rule in names.values() if rule not in targets]
    return RuleGraph(kept, {edge for edge in edges if set(edge) <= set(kept)})


def draw_rule_graph(graph: RuleGraph, notes: dict[str, str]) -> str:
    """SVG of the graph; ``notes`` by rule stand in its box. An edge that others imply is faint, one that closes a cycle dashed."""
    if not graph.rules:
        return ""
    back = _cycle_edges(graph)
    layers = _ordered(_layers(graph, back), graph.edges - back)
    places = _places(layers)
    implied = _implied(graph.edges - back)
    side = max(x for x, _ in places.values()) + BOX[0] + GAP  # where lines upwards run
    width = side + MARGIN
    height = max(y for _, y in places.values()) + BOX[1] + MARGIN
    kinds = {edge: "back" if edge in back else "implied" if edge in implied else "" for edge in graph.edges}
    lines = [_path(places, edge, kinds[edge], side) for edge in sorted(graph.edges, key=lambda edge: (kinds[edge] != "implied", edge))]
    boxes = [_box(rule, places[rule], notes.get(rule, "")) for layer in layers for rule in layer]
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg {size} role="img" aria-label="Rules of the workflow and what reads what">{"".join(lines + boxes)}</svg>'


def _cycle_edges(graph: RuleGraph) -> Edges:
    """Edges that close a cycle: jobs have none, but two jobs of one rule may lie on both sides of another rule."""
    readers = {rule: sorted(end for start, end in graph.edges if start == rule) for rule in graph.rules}
    sources = sorted(graph.rules, key=lambda rule: (rule.split("_")[0] != "collect", graph.rules.index(rule)))
    closing, finished, path = set(), set(), []

    def visit(rule: str) -> None:
        path.append(rule)
        for reader in readers[rule]:
            if reader in path:
                closing.add((rule, reader))
            elif reader not in finished:
                visit(reader)
        finished.add(path.pop())

    for rule in sources:
        if rule not in finished:
            visit(rule)
    return closing


def _layers(graph: RuleGraph, back: Edges) -> list[list[str]]:
    """Rules by the longest way from them to the end, so that each stands right above what needs it."""

    @functools.cache
    def height(rule: str) -> int:
        return 1 + max((height(end) for start, end in graph.edges - back if start == rule), default=-1)

    highest = max(map(height, graph.rules))
    return [[rule for rule in graph.rules if height(rule) == highest - layer] for layer in range(highest + 1)]


def _ordered(layers: list[list[str]], edges: Edges) -> list[list[str]]:
    """Each layer by the mean place of its neighbours, from both sides in turn, so that few edges cross."""
    middle = {rule: place - (len(layer) - 1) / 2 for layer in layers for place, rule in enumerate(layer)}

    def pull(rule: str, down: bool) -> float:
        near = [middle[start] if down else middle[end] for start, end in edges if rule == (end if down else start)]
        return sum(near) / len(near) if near else middle[rule]

    for sweep in range(SWEEPS):
        for number in range(len(layers)) if sweep % 2 == 0 else reversed(range(len(layers))):
            layers[number] = sorted(layers[number], key=lambda rule: (pull(rule, sweep % 2 == 0), rule))
            middle |= {rule: place - (len(layers[number]) - 1) / 2 for place, rule in enumerate(layers[number])}
    return layers


def _places(layers: list[list[str]]) -> dict[str, tuple[int, int]]:
    """Upper left corner of every box; layers are centred."""
    step = BOX[0] + GAP
    widest = max(map(len, layers))
    return {
        rule: (MARGIN + round(step * (place + (widest - len(layer)) / 2)), MARGIN + LAYER * number)
        for number, layer in enumerate(layers)
        for place, rule in enumerate(layer)
    }


def _implied(edges: Edges) -> Edges:
    """Edges beside which there is a longer way, too."""
    readers: dict[str, set[str]] = {}
    for start, end in edges:
        readers.setdefault(start, set()).add(end)

    @functools.cache
    def reached(rule: str) -> frozenset[str]:
        return frozenset(end for near in readers.get(rule, ()) for end in (near, *reached(near)))

    return {(start, end) for start, end in edges if any(end in reached(other) for other in readers[start] - {end})}


def _path(places: dict[str, tuple[int, int]], edge: tuple[str, str], kind: str, side: int) -> str:
    (x0, y0), (x1, y1) = places[edge[0]], places[edge[1]]
    if kind == "back":
        points = (x0 + BOX[0], y0 + BOX[1] // 2), (side + GAP, y0), (side + GAP, y1), (x1 + BOX[0], y1 + BOX[1] // 2)
    else:
        x0, x1, y0 = x0 + BOX[0] // 2, x1 + BOX[0] // 2, y0 + BOX[1]
        bend = (y1 - y0) // 2
        points = (x0, y0), (x0, y0 + bend), (x1, y1 - bend), (x1, y1)
    start, *curve = (f"{x} {y}" for x, y in points)
    return f'<path class="{kind}" data-edge="{edge[0]} {edge[1]}" d="M{start}C{" ".join(curve)}"/>'


def _box(rule: str, place: tuple[int, int], note: str) -> str:
    x, y = place
    color = next((color for word, color in COLORS.items() if word in rule), GREY)
    middle, line = x + BOX[0] // 2, y + (20 if note else 28)
    shape = f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6" stroke="{color}"/>'
    name = f'<text x="{middle}" y="{line}">{html.escape(rule.replace("_", " "))}</text>'
    return shape + name + (f'<text class="time" x="{middle}" y="{line + 17}">{html.escape(note)}</text>' if note else "")
