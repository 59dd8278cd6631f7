"""The graph as SVG: Graphviz places ops, partitions and edges, and this draws them."""
import dataclasses
import json
import subprocess
from html import escape

from . import style
from .runner import Failure

POINTS = 72.0  # of Graphviz, in an inch; here a point is a pixel
PAD, LINE = 9, 15
TITLE_HEIGHT = 36
MOST_LETTERS, MOST_IN_TITLE = 44, 72  # of a line of ops or kernels

# What a box looks like: its class, that of its first line, radius and margin above and below.
LOOKS = {
    "op": ("node", "kind", 5, 4.5),
    "alone": ("area", "title", 8, 6.5),  # a partition that is one box
    "input": ("pill", "small muted", 9, 3),
    "output": ("pill", "small muted", 9, 3),
    "constant": ("constant", "small muted", 9, 3)
}


class Box:
    """Something that Graphviz gives a place to. kind: of LOOKS; part: place of its partition;
    kernels: how many lines behind the first one name kernels."""

    def __init__(self, name, lines, kind, part=None, tip=None):
        self.name, self.lines, self.kind, self.part = name, lines, kind, part
        self.tip, self.kernels = tip or kind, 0
        self.x = self.y = 0.0
        first = {"op": (12, True), "alone": (13, True)}.get(kind, (10.5, False))
        wide = [style.text_width(text, *((10.5, False) if i else first))
                for i, text in enumerate(lines)]
        self.width = max(wide) + 2 * PAD
        self.height = LINE * len(lines) + 2 * LOOKS[kind][3]


def counted(names):
    """3 × MatMul, Add: each name once."""
    return [(f"{names.count(name)} × " if names.count(name) > 1 else "") + name
            for name in dict.fromkeys(names)]


def in_lines(words, most=MOST_LETTERS):
    """The words with commas between them, in lines of up to so many letters."""
    lines = []
    for word in words:
        if lines and len(lines[-1]) + len(word) <= most:
            lines[-1] += ", " + word
        else:
            lines.append(word)
    return lines


def state(part):
    """The kernels; of a partition without any, why."""
    if part["steps"]:
        return counted([step["kernel"] for step in part["steps"]])
    return ["not compiled" if part["supported"] else "not supported"]


@dataclasses.dataclass
class Edge:
    tail: str
    head: str
    tensors: list
    between: bool  # partitions, or a partition and an output


class Graph:
    """What is drawn: boxes, clusters of them, and edges. folded: a partition is one box, whatever
    its ops."""

    def __init__(self, document, folded=False):
        self.parts, self.folded = document["partitions"], folded
        self.tensors = {tensor["id"]: tensor for tensor in document["tensors"]}
        self.boxes, self.edges = {}, []
        producer, readers = {}, {}  # tensor -> box, tensor -> boxes
        for place, part in enumerate(self.parts):
            for op in part["ops"]:
                name = self.add_op(place, part, op)
                producer |= {tensor: name for tensor in op["outputs"]}
                for tensor in op["inputs"]:
                    readers.setdefault(tensor, {})[name] = None
        self.add_inputs(producer, readers)
        self.add_edges(producer, readers)
        self.add_outputs(document["graph"]["outputs"], producer)

    def add_op(self, place, part, op):
        """The name of the box, that of the whole partition if it has no other."""
        if self.is_one(place):
            name, kernels = f"part{place}", in_lines(state(part))
            kinds = counted([o["kind"] for o in part["ops"]]) if len(part["ops"]) > 1 else []
            lines = [self.title(place), *kernels, *in_lines(kinds)]
            self.boxes[name] = Box(name, lines, "alone", place, f"partition {part['id']}")
            self.boxes[name].kernels = len(kernels) if kinds else 0
            return name
        name, role = f"op{op['id']}", f" · {op['role']}" if op["role"] else ""
        tip = f"op {op['id']} {op['kind']}" + (f" \"{op['name']}\"" if op.get("name") else "")
        self.boxes[name] = Box(name, [op["kind"], f"op {op['id']}{role}"], "op", place, tip)
        return name

    def is_one(self, place):
        return self.folded or len(self.parts[place]["ops"]) == 1

    def label(self, tensor):
        return f"{tensor} · {style.dims(self.tensors[tensor])}"

    def sum_of(self, tensors):
        """Many constants in a line."""
        size = sum(self.tensors[t].get("bytes", 0) for t in tensors)
        return f"{len(tensors)} constants, {style.scaled(size, 'B')}"

    def lines(self, tensors, constant=False):
        if self.folded and constant and len(tensors) > 1:
            return [self.sum_of(tensors)]
        return [self.label(t) for t in tensors]

    def add_inputs(self, producer, readers):
        """Inputs with the same readers share a box with a line for each."""
        groups = {}
        for tensor, names in readers.items():
            if tensor not in producer:
                groups.setdefault((*names, self.tensors[tensor]["constant"]), []).append(tensor)
        for (*names, constant), tensors in groups.items():
            box = Box(f"in{tensors[0]}", self.lines(tensors, constant),
                      "constant" if constant else "input")
            self.boxes[box.name] = box
            self.edges += [Edge(box.name, name, tensors, False) for name in names]

    def add_edges(self, producer, readers):
        groups = {}
        for tensor in (t for t in readers if t in producer):
            for head in readers[tensor]:
                groups.setdefault((producer[tensor], head), []).append(tensor)
        for (tail, head), tensors in groups.items():
            if tail != head:
                between = self.boxes[tail].part != self.boxes[head].part
                self.edges.append(Edge(tail, head, tensors, between))

    def add_outputs(self, outputs, producer):
        groups = {}
        for tensor in (t["id"] for t in outputs if t["id"] in producer):
            groups.setdefault(producer[tensor], []).append(tensor)
        for tail, tensors in groups.items():
            box = Box(f"out{tensors[0]}", self.lines(tensors), "output")
            self.boxes[box.name] = box
            self.edges.append(Edge(tail, box.name, tensors, True))

    def title(self, place):
        part = self.parts[place]
        return f"{part['id']} · {style.name_of(part)}"

    def titles(self, place):
        """Two lines; of many kernels the first ones."""
        kernels = in_lines(state(self.parts[place]), MOST_IN_TITLE)
        return self.title(place), kernels[0] + (", …" if len(kernels) > 1 else "")

    def labels(self):
        """{place of an edge: lines}: the tensors between partitions, once for each reader."""
        seen, found = set(), {}
        for i, edge in enumerate(self.edges):
            part = self.boxes[edge.head].part
            fresh = [t for t in edge.tensors if (t, part) not in seen]
            if edge.between and part is not None and fresh:
                seen |= {(t, part) for t in fresh}
                found[i] = self.lines(fresh)
        return found


# ---- Graphviz ------------------------------------------------------------------------------------


def blank(width, height):
    """A label without text that takes this much room."""
    return (f'<<TABLE BORDER="0" FIXEDSIZE="TRUE" WIDTH="{width:.0f}" HEIGHT="{height:.0f}">'
            "<TR><TD></TD></TR></TABLE>>")


def label_size(lines):
    return max(style.text_width(text, 10.5) for text in lines) + 10, LINE * len(lines) + 3


def source(graph, direction):
    lines = [
        "digraph g {",
        f'graph [rankdir={direction}, nodesep=0.22, ranksep=0.34, labeljust=l, margin=0];',
        'node [shape=box, fixedsize=true, label=""]; edge [arrowsize=0.6];'
    ]
    rows = {name: f'{name} [width={b.width / POINTS:.4f}, height={b.height / POINTS:.4f}];'
            for name, b in graph.boxes.items()}
    for place in (p for p in range(len(graph.parts)) if not graph.is_one(p)):
        first, second = graph.titles(place)
        wide = max(style.text_width(first, 13, True), style.text_width(second, 10.5)) + 6
        # A frame that is not drawn keeps neighbours apart.
        lines.append(f'subgraph cluster_around_{place} {{ peripheries=0; margin=5; label="";')
        lines.append(f"subgraph cluster_{place} {{ margin=12; label={blank(wide, TITLE_HEIGHT)};")
        lines += [rows.pop(name) for name, b in graph.boxes.items() if b.part == place]
        lines.append("}}")
    lines += rows.values()
    labels = graph.labels()
    for i, edge in enumerate(graph.edges):
        room = blank(*(side + 4 for side in label_size(labels[i]))) if i in labels else '""'
        lines.append(f'{edge.tail} -> {edge.head} [label={room}, comment="{i}"];')
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
        elif item["name"][8:].isdigit():
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
        look = first if i == 0 else "small" if i <= box.kernels else "small muted"
        part.append(f'<text class="{look}" x="{box.x:.1f}" y="{top + LINE * i + 11:.1f}" '
                    f'text-anchor="middle">{escape(text)}</text>')
    return f'<g><title>{escape(box.tip)}</title>{"".join(part)}</g>'


def draw_edge(graph, index, spline, tip):
    edge = graph.edges[index]
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
    look = "edge between" if edge.between else "edge"
    what = escape("\n".join(graph.label(t) for t in edge.tensors))
    return f'<g><title>{what}</title><path class="{look}" d="{path}"/>{arrow}</g>'


def draw_label(lines, place):
    (wide, high), (x, y) = label_size(lines), place
    items = [f'<rect class="pill" x="{x - wide / 2:.1f}" y="{y - high / 2:.1f}" '
             f'width="{wide:.1f}" height="{high:.1f}" rx="8.5"/>']
    items += [f'<text class="small muted" x="{x:.1f}" y="{y - high / 2 + 12.5 + LINE * i:.1f}" '
              f'text-anchor="middle">{escape(text)}</text>' for i, text in enumerate(lines)]
    return "".join(items)


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


def draw(document, dot, direction="TB", folded=False):
    """(SVG elements, width, height). A partition is a group of class "partition"."""
    graph = Graph(document, folded)
    width, height, clusters, edges = place_all(dot, graph, direction)
    items = [draw_partition(graph, place, clusters.get(place))
             for place in range(len(graph.parts))]
    items += [draw_edge(graph, index, spline, tip) for index, spline, tip, _ in edges]
    items += [draw_title(graph, place, frame) for place, frame in clusters.items()]
    items += [draw_box(b) for b in graph.boxes.values() if b.part is None]
    labels = graph.labels()
    items += [draw_label(labels[index], place) for index, _, _, place in edges if place]
    body = "\n".join(items)
    return f'<g transform="translate(2,2)">{body}</g>', width + 4, height + 4


def svg(elements, width, height, look="", style_text=""):
    """A drawing of its own. look: more classes."""
    css = f"<style>{style_text}</style>" if style_text else ""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing {look}" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
            f'{css}{elements}</svg>')
