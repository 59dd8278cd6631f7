"""The sequence with its scratch arena as a picture: partitions from left to right, bytes
downwards, a bar for each tensor from the partition that writes it to the last one that reads it."""
from html import escape

from . import style

LEFT, TOP, BOTTOM = 74, 44, 24
LEAST_COLUMN, MOST_WIDTH, HEIGHT, LEAST_BAR = 74, 960, 300, 3.0


def check(sequence, document):
    """The members that are used; a message that says what is wrong, or None."""
    ids = {part["id"] for part in document["partitions"]}
    order = sequence.get("partitions", [])
    if not set(order) <= ids:
        return "the sequence names partitions that the graph does not have"
    for tensor in sequence.get("tensors", []):
        if not 0 <= tensor["first"] <= tensor["last"] < len(order):
            return f"tensor {tensor['id']} lives from {tensor['first']} to {tensor['last']}, " \
                   f"in a sequence of {len(order)}"
        if tensor["offset"] + tensor["bytes"] > sequence["scratch_bytes"]:
            return f"tensor {tensor['id']} ends beyond the arena"
    return None


def draw_bar(tensor, part, place, column, scale):
    x = LEFT + tensor["first"] * column + 3
    width = (tensor["last"] - tensor["first"] + 1) * column - 6
    y, height = TOP + tensor["offset"] * scale, max(tensor["bytes"] * scale - 1, LEAST_BAR)
    size = style.scaled(tensor["bytes"], "B")
    tip = f"tensor {tensor['id']}, {size} at {tensor['offset']}, written by partition {part}"
    label = ""
    if height >= 14:
        words = f"{tensor['id']} · {size}"
        words = words if style.text_width(words, 10.5) < width else str(tensor["id"])
        label = (f'<text class="small" x="{x + width / 2:.1f}" y="{y + height / 2 + 3.8:.1f}" '
                 f'text-anchor="middle">{escape(words)}</text>')
    return (f'<g class="{style.colour(place)} bar" data-part="{part}"><title>{escape(tip)}</title>'
            f'<rect class="area" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{min(4, height / 2):.1f}"/>{label}</g>')


def draw(document, most_width=MOST_WIDTH, height=HEIGHT):
    """(SVG elements, width, height), or None where partitions hand nothing on, or dims are unknown
    until execute."""
    sequence = document.get("sequence")
    if not sequence or not sequence.get("tensors"):
        return None
    order = sequence["partitions"]
    places = {part["id"]: place for place, part in enumerate(document["partitions"])}
    column = max(LEAST_COLUMN, min(150, (most_width - LEFT) / len(order)))
    total = sequence["scratch_bytes"]
    scale, width = height / total if total else 0, LEFT + column * len(order) + 10
    items = [f'<rect class="constant" x="{LEFT}" y="{TOP}" width="{column * len(order):.1f}" '
             f'height="{height}"/>']
    for i, part in enumerate(order):
        middle = LEFT + (i + 0.5) * column
        pattern = style.name_of(document["partitions"][places[part]])
        short = pattern if style.text_width(pattern, 10.5) < column else pattern[:9] + "…"
        items.append(f'<g class="{style.colour(places[part])} point" data-part="{part}">'
                     f'<title>partition {part}, {escape(pattern)}</title>'
                     f'<text class="title" x="{middle:.1f}" y="{TOP - 24}" text-anchor="middle">'
                     f'{part}</text><text class="small muted" x="{middle:.1f}" y="{TOP - 9}" '
                     f'text-anchor="middle">{escape(short)}</text></g>')
        if i:
            items.append(f'<path class="grid" d="M{LEFT + i * column:.1f},{TOP}v{height}"/>')
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = TOP + share * height + 3.5
        items.append(f'<text class="small muted" x="{LEFT - 7}" y="{y:.1f}" text-anchor="end">'
                     f'{style.scaled(share * total, "B")}</text>')
    for tensor in sequence.get("tensors", []):
        part = order[tensor["first"]]
        items.append(draw_bar(tensor, part, places[part], column, scale))
    return "\n".join(items), width, TOP + height + BOTTOM


def saved(sequence):
    """What the arena takes, and what its tensors would take side by side."""
    apart = sum(tensor["bytes"] for tensor in sequence.get("tensors", []))
    return sequence["scratch_bytes"], apart
