"""Draw the map of the code in CONTRIBUTING.md from its imports: a picture of the rooms, and a table of what they own and import.

A room is a package or a module directly under `multihorizon`. The picture leaves out an arrow where a longer path says the same.

Run: python docs/draw_architecture.py
"""

import ast
import tomllib
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "multihorizon"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PAGE = ROOT / "CONTRIBUTING.md"
START, END = "<!-- rooms: written by docs/draw_architecture.py -->", "<!-- end of rooms -->"
#: Rooms at the bottom that every other one may use; the picture and the table leave out imports of them.
TOOLS = ("checks", "parallel", "files", "words", "result")
WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, MARGIN = 880, 134, 30, 66, 20
#: Sweeps of the ordering; the picture does not change after a few.
SWEEPS = 12


def layers() -> list[list[str]]:
    """The rooms from the top of the import contract to its bottom; rooms of one entry do not know each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    listed = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    found = [[room.strip() for room in entry.split("|")] for entry in listed if entry != "__main__"]
    paper = found.index(["paper"])
    return [*found[: paper + 1], ["__init__"], *found[paper + 1 :]]


def files(room: str) -> list[Path]:
    """The modules of a room, its own docstring first."""
    package = SOURCE / room
    if room == "__init__":
        return [SOURCE / "__init__.py", SOURCE / "__init__.pyi"]
    return (
        [package / "__init__.py", *sorted(package.rglob("[!_]*.py"))]
        if package.is_dir()
        else [SOURCE / f"{room}.py"]
    )


def imports(room: str) -> set[str]:
    """The other rooms that a room imports; `__init__` stands for the public names."""
    found = set()
    for file in files(room):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.ImportFrom)
                and node.module
                and node.module.startswith("multihorizon")
            ):
                parts = node.module.split(".")
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
            elif isinstance(node, ast.Import) and any(
                alias.name == "multihorizon" for alias in node.names
            ):
                found.add("__init__")
    return (
        found - {room} - ({"paper"} if room == "__init__" else set())
    )  # loaded when asked for, by those above


def owns(room: str) -> str:
    """What a room holds: the first sentence of its docstring."""
    if room == "__init__":
        return "The public names, loaded when they are first used"
    text = ast.get_docstring(ast.parse(files(room)[0].read_text(encoding="utf-8"))) or ""
    sentence = " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".:")
    return sentence.replace("|", "\\|")


def table(rooms: list[str], graph: dict[str, set[str]]) -> str:
    """The rooms from top to bottom with what they own and import."""
    rows = ["| room | owns | imports |", "|---|---|---|"]
    for room in rooms:
        below = ", ".join(
            f"`{other}`" for other in rooms if other in graph[room] and other not in TOOLS
        )
        name = f"`{room}/`" if (SOURCE / room).is_dir() else f"`{room}.py`"
        rows.append(f"| {name} | {owns(room)} | {below or 'tools only'} |")
    return "\n".join(rows)


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that no longer path implies."""

    def reach(room: str) -> set[str]:
        return set().union(*({other} | reach(other) for other in graph[room]))

    return {
        room: {a for a in below if not any(a in reach(b) for b in below - {a})}
        for room, below in graph.items()
    }


def routes(
    graph: dict[str, set[str]],
) -> tuple[dict[str, tuple[float, int]], dict[tuple[str, str], list[str]]]:
    """Where each room stands, as x and level, and the stops of each arrow.

    A room's level is the longest path below it. An arrow over several levels has a stop on each, so that it passes between the
    boxes. Rooms and stops of one level are ordered by the mean place of their neighbours above and below, in a few sweeps.
    """

    def height(room: str) -> int:
        return max((1 + height(other) for other in graph[room]), default=0)

    level = {room: height(room) for room in graph}
    paths: dict[tuple[str, str], list[str]] = {}
    for room, other in [(a, b) for a in sorted(graph) for b in sorted(graph[a])]:
        stops = [f"{room}>{other}@{k}" for k in range(level[room] - 1, level[other], -1)]
        level |= {stop: int(stop.split("@")[1]) for stop in stops}
        paths[room, other] = [room, *stops, other]
    links = [pair for path in paths.values() for pair in pairwise(path)]
    neighbours = {
        node: [b if a == node else a for a, b in links if node in (a, b)] for node in level
    }
    place = dict.fromkeys(level, WIDTH / 2)
    for _ in range(SWEEPS):
        for height_now in sorted(set(level.values())):
            row = [node for node in level if level[node] == height_now]
            row.sort(
                key=lambda node: (
                    sum(place[n] for n in neighbours[node]) / max(1, len(neighbours[node])),
                    node,
                )
            )
            place |= _spread(row)
    return {node: (place[node], level[node]) for node in level}, paths


def _spread(row: list[str]) -> dict[str, float]:
    """One level from left to right: boxes need room, stops of arrows little."""
    widths = [0.3 if "@" in node else 1.0 for node in row]
    unit = (WIDTH - 2 * MARGIN) / sum(widths)
    return {node: MARGIN + unit * (sum(widths[:i]) + widths[i] / 2) for i, node in enumerate(row)}


def picture(graph: dict[str, set[str]]) -> str:
    """The rooms as boxes and the imports as arrows, as SVG; the tools that every room may use stand in one box below."""
    graph = {room: below - set(TOOLS) for room, below in graph.items() if room not in TOOLS}
    at, paths = routes(graph)
    top = max(level for _, level in at.values())
    y = {node: MARGIN + (top - level) * ROW_HEIGHT for node, (_, level) in at.items()}
    size = 2 * MARGIN + (top + 1) * ROW_HEIGHT + BOX_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {size}" font-family="sans-serif" font-size="14">',
        "<title>The rooms of multihorizon; an arrow points from a room to one that it imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{size}" fill="white"/>',
        *(_arrow([(at[node][0], y[node]) for node in path]) for path in paths.values()),
        *(
            _box(
                room + ("/" if (SOURCE / room).is_dir() else ".py"), at[room][0], y[room], BOX_WIDTH
            )
            for room in sorted(graph)
        ),
        _box(
            f"every room may use: {', '.join(f'{tool}.py' for tool in TOOLS)}",
            WIDTH / 2,
            size - MARGIN - BOX_HEIGHT,
            520,
        ),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _arrow(stops: list[tuple[float, float]]) -> str:
    """A curve from the foot of the first box through the stops to the head of the last box."""
    points = [(x, y + BOX_HEIGHT / 2) for x, y in stops]
    points[0], points[-1] = (
        (stops[0][0], stops[0][1] + BOX_HEIGHT),
        (stops[-1][0], stops[-1][1] - 2),
    )
    curve = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = (y1 - y0) / 2
        curve += f"C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
    return f'<path d="{curve}" fill="none" stroke="#667" marker-end="url(#tip)"/>'


def _box(label: str, x: float, y: float, width: float) -> str:
    fill = "#dbe9f6" if label.endswith("/") else "#f3f0e6"
    box = f'<rect x="{x - width / 2:.0f}" y="{y:.0f}" width="{width}" height="{BOX_HEIGHT}" rx="5" fill="{fill}" stroke="#445"/>'
    return f'{box}<text x="{x:.0f}" y="{y + 20:.0f}" text-anchor="middle" fill="#112">{escape(label)}</text>'


def page(text: str) -> str:
    """The page with the table between its markers."""
    rooms = [room for layer in layers() for room in layer]
    graph = {room: imports(room) for room in rooms}
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n\n{table(rooms, graph)}\n\n{END}{after}"


def drawing() -> str:
    """The picture of today's imports."""
    rooms = [room for layer in layers() for room in layer]
    return picture(reduced({room: imports(room) & set(rooms) for room in rooms}))


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
