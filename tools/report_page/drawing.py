"""The graph as SVG: Graphviz places ops, partitions and edges, and this draws them."""
import json
import subprocess
from html import escape

from . import style
from .runner import Failure

POINTS = 72.0  # of Graphviz, in an inch; here a point is a pixel
PAD, LINE = 9, 15
TITLE_HEIGHT = 36


# What a box looks like: its class, that of its first line, radius and margin above and below.
LOOKS = {
    "op": ("node", "kind", 5, 4.5),
    "alone": ("area", "title", 8, 6.5),  # an op that is a partition
    "input": ("pill", "small muted", 9, 3),
    "output": ("pill", "small muted", 9, 3),
    "constant": ("constant", "small muted", 9, 3)
}


class Box:
    """Something that Graphviz gives a place to. kind: of LOOKS; part: place of its partition."""

    def __init__(self, name, lines, kind, part=None, tip=None):
        self.name, self.lines, self.kind, self.part = name, lines, kind, part
        self.tip = tip or kind
        self.x = self.y = 0.0
        first = {"op": (12, True), "alone": (13, True)}.get(kind, (10.5, False))
        wide = [style.text_width(text, *((10.5, False) if i else first))
                for i, text in enumerate(lines)]
        self.width = max(wide) + 2 * PAD
        self.height = LINE * len(lines) + 2 * LOOKS[kind][3]


def kernels(part):
    """matmul_rows_int8_avx2 ×3."""
    names = [step["kernel"] for step in part["steps"]]
    return ", ".join(name + (f" ×{names.count(name)}" if names.count(name) > 1 else "")
                     for name in dict.fromkeys(names))


class Graph:
    """What is drawn: boxes, clusters of them, and edges (from, to, tensor, between partitions)."""

    def __init__(self, document):
        self.parts = document["partitions"]
        self.tensors = {tensor["id"]: tensor for tensor in document["tensors"]}
        self.boxes, self.edges = {}, []
        self.place = {}  # op id -> place of its partition
        producer, readers = {}, {}
        for place, part in enumerate(self.parts):
            for op in part["ops"]:
                self.add_op(place, part, op)
                producer |= {tensor: op["id"] for tensor in op["outputs"]}
                for tensor in dict.fromkeys(op["inputs"]):
                    readers.setdefault(tensor, []).append(op["id"])
        self.add_inputs(producer, readers)
        self.add_edges(producer, readers)
        self.add_outputs(document["graph"]["outputs"], producer)

    def add_op(self, place, part, op):
        self.place[op["id"]] = place
        role = op["role"] if op["role"] and part["pattern"] != "single" else None
        second = f"op {op['id']}" + (f" · {role}" if role else "")
        tip = f"op {op['id']} {op['kind']}" + (f" \"{op['name']}\"" if op.get("name") else "")
        lines, kind = [op["kind"], second], "op"
        if self.is_alone(place):
            lines, kind = list(self.titles(place)), "alone"
        self.boxes[f"op{op['id']}"] = Box(f"op{op['id']}", lines, kind, place, tip)

    def is_alone(self, place):
        return len(self.parts[place]["ops"]) == 1

    def label(self, tensor):
        return f"{tensor} · {style.dims(self.tensors[tensor])}"

    def add_inputs(self, producer, readers):
        """Inputs of one op alone share a box with a line for each."""
        groups = {}
        for tensor, ops in readers.items():
            if tensor not in producer:
                constant = self.tensors[tensor]["constant"]
                key = (ops[0], constant) if len(ops) == 1 else (tensor, None)
                groups.setdefault(key, []).append(tensor)
        for tensors in groups.values():
            name = f"in{tensors[0]}"
            kind = "constant" if self.tensors[tensors[0]]["constant"] else "input"
            self.boxes[name] = Box(name, [self.label(t) for t in tensors], kind)
            for op in readers[tensors[0]]:
                self.edges.append((name, f"op{op}", tensors[0], False))

    def add_edges(self, producer, readers):
        for tensor, ops in readers.items():
            for op in ops if tensor in producer else ():
                between = self.place[producer[tensor]] != self.place[op]
                self.edges.append((f"op{producer[tensor]}", f"op{op}", tensor, between))

    def add_outputs(self, outputs, producer):
        for tensor in (t["id"] for t in outputs if t["id"] in producer):
            name = f"out{tensor}"
            self.boxes[name] = Box(name, [self.label(tensor)], "output")
            self.edges.append((f"op{producer[tensor]}", name, tensor, True))

    def titles(self, place):
        part = self.parts[place]
        second = kernels(part) or ("not supported" if not part["supported"] else "not compiled")
        return f"{part['id']} · {style.name_of(part)}", second

    def labelled(self):
        """The edges that carry the tensor's name: between partitions, once for each of them."""
        seen, found = set(), set()
        for i, (_, head, tensor, between) in enumerate(self.edges):
            key = (tensor, self.boxes[head].part)
            if between and head.startswith("op") and key not in seen:
                seen.add(key)
                found.add(i)
        return found


# ---- Graphviz ------------------------------------------------------------------------------------


def blank(width, height):
    """A label without text that takes this much room."""
    return (f'<<TABLE BORDER="0" FIXEDSIZE="TRUE" WIDTH="{width:.0f}" HEIGHT="{height:.0f}">'
            "<TR><TD></TD></TR></TABLE>>")


def source(graph, direction):
    lines = [
        "digraph g {",
        f'graph [rankdir={direction}, nodesep=0.22, ranksep=0.34, labeljust=l, margin=0];',
        'node [shape=box, fixedsize=true, label=""]; edge [arrowsize=0.6];'
    ]
    rows = {name: f'{name} [width={b.width / POINTS:.4f}, height={b.height / POINTS:.4f}];'
            for name, b in graph.boxes.items()}
    for place in (p for p in range(len(graph.parts)) if not graph.is_alone(p)):
        first, second = graph.titles(place)
        wide = max(style.text_width(first, 13, True), style.text_width(second, 10.5)) + 6
        lines.append(f"subgraph cluster_{place} {{ margin=12; label={blank(wide, TITLE_HEIGHT)};")
        lines += [rows.pop(name) for name, b in graph.boxes.items() if b.part == place]
        lines.append("}")
    lines += rows.values()
    labelled = graph.labelled()
    for i, (tail, head, tensor, _) in enumerate(graph.edges):
        wide = style.text_width(graph.label(tensor), 10.5) + 14
        label = f"label={blank(wide, 19)}, " if i in labelled else ""
        lines.append(f'{tail} -> {head} [{label}comment="{i}"];')
    return "\n".join(lines + ["}"])


def place_all(dot, graph, direction):
    """The layout: (width, height, rectangles of the clusters, [(edge, path, tip, label place)])."""
    done = subprocess.run([dot, "-Tjson0"], input=source(graph, direction), capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"dot ended with {done.returncode}: {done.stderr.strip()}")
    layout = json.loads(done.stdout)
    _, _, width, height = map(float, layout["bb"].split(","))

    def point(text):
        x, y = text.split(",")[-2:]
        return float(x), height - float(y)

    clusters, edges = {}, []
    for item in layout.get("objects", ()):
        if item["name"] in graph.boxes:
            box = graph.boxes[item["name"]]
            box.x, box.y = point(item["pos"])
        elif item["name"].startswith("cluster_"):
            x0, y0, x1, y1 = map(float, item["bb"].split(","))
            clusters[int(item["name"][8:])] = (x0, height - y1, x1 - x0, y1 - y0)
    for item in layout.get("edges", ()):
        spline = item["pos"].split()
        tip = point(spline.pop(0)) if spline[0].startswith("e,") else None
        spline = [point(p) for p in spline if not p.startswith("s,")]
        edges.append((int(item["comment"]), spline, tip,
                      point(item["lp"]) if "lp" in item else None))
    return width, height, clusters, edges


# ---- SVG -----------------------------------------------------------------------------------------


def draw_box(box):
    x, y = box.x - box.width / 2, box.y - box.height / 2
    shape, first, radius, _ = LOOKS[box.kind]
    part = [f'<rect class="{shape}" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" '
            f'height="{box.height:.1f}" rx="{radius}"/>']
    top = box.y - LINE * len(box.lines) / 2
    for i, text in enumerate(box.lines):
        look = "small muted" if i else first
        part.append(f'<text class="{look}" x="{box.x:.1f}" y="{top + LINE * i + 11:.1f}" '
                    f'text-anchor="middle">{escape(text)}</text>')
    return f'<g><title>{escape(box.tip)}</title>{"".join(part)}</g>'


def draw_edge(graph, index, spline, tip):
    tail, head, tensor, between = graph.edges[index]
    x, y = spline[-1]
    path = (f"M{spline[0][0]:.1f},{spline[0][1]:.1f}C" +
            " ".join(f"{a:.1f},{b:.1f}" for a, b in spline[1:]))
    arrow = ""
    if tip:
        dx, dy = tip[0] - x, tip[1] - y
        far = (dx * dx + dy * dy)**0.5 or 1.0
        sx, sy = -dy / far * 3, dx / far * 3
        arrow = (f'<path class="arrow" d="M{tip[0]:.1f},{tip[1]:.1f}L{x + sx:.1f},{y + sy:.1f}'
                 f'L{x - sx:.1f},{y - sy:.1f}Z"/>')
    look = "edge between" if between else "edge"
    what = escape(f"{graph.label(tensor)}")
    return f'<g><title>{what}</title><path class="{look}" d="{path}"/>{arrow}</g>'


def draw_label(graph, index, place):
    text = graph.label(graph.edges[index][2])
    wide = style.text_width(text, 10.5) + 10
    return (f'<rect class="pill" x="{place[0] - wide / 2:.1f}" y="{place[1] - 8.5:.1f}" '
            f'width="{wide:.1f}" height="17" rx="8.5"/><text class="small muted" '
            f'x="{place[0]:.1f}" y="{place[1] + 3.8:.1f}" text-anchor="middle">'
            f'{escape(text)}</text>')


def draw_partition(graph, place, frame):
    """frame: x, y, width and height, or None where the box of its only op is the partition's."""
    boxes = [b for b in graph.boxes.values() if b.part == place]
    part = graph.parts[place]
    bad = "" if part["supported"] else " bad"
    name = escape(f"partition {part['id']}, {part['pattern']}", quote=True)
    area = ""
    if frame:
        x, y, width, height = frame
        area = (f'<rect class="area" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{height:.1f}" rx="8"/>')
    return (f'<g class="partition {style.colour(place)}{bad}" data-part="{part["id"]}" '
            f'tabindex="0" role="button" aria-label="{name}">'
            f'{area}{"".join(map(draw_box, boxes))}</g>')


def draw_title(graph, place, frame):
    """Above the edges, which pass behind it."""
    x, y = frame[0] + 11, frame[1]
    first, second = map(escape, graph.titles(place))
    return (f'<g class="{style.colour(place)}" data-part="{graph.parts[place]["id"]}">'
            f'<text class="title over" x="{x:.1f}" y="{y + 19:.1f}">{first}</text>'
            f'<text class="small muted over" x="{x:.1f}" y="{y + 34:.1f}">{second}</text></g>')


def draw(document, dot, direction="TB"):
    """(SVG elements, width, height). A partition is a group of class "partition"."""
    graph = Graph(document)
    width, height, clusters, edges = place_all(dot, graph, direction)
    items = [draw_partition(graph, place, clusters.get(place))
             for place in range(len(graph.parts))]
    items += [draw_edge(graph, index, spline, tip) for index, spline, tip, _ in edges]
    items += [draw_title(graph, place, frame) for place, frame in clusters.items()]
    items += [draw_box(b) for b in graph.boxes.values() if b.part is None]
    items += [draw_label(graph, index, place) for index, _, _, place in edges if place]
    body = "\n".join(items)
    return f'<g transform="translate(2,2)">{body}</g>', width + 4, height + 4


def svg(elements, width, height, look="", style_text=""):
    """A drawing of its own. look: more classes."""
    css = f"<style>{style_text}</style>" if style_text else ""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing {look}" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
            f'{css}{elements}</svg>')
