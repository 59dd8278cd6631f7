"""The roofline chart: what a machine lets each partition reach, and what was measured."""
import math
from html import escape

from . import style

HEIGHT, TOP, BOTTOM, LEFT = 390, 46, 52, 78
MAIN, RIGHT = 560, 165  # widths: of the plot, of the names of its peaks
SIDE, GAP = 170, 92  # the panel of partitions without products, on the left, and what follows
NEAR = 17  # pixels between markers that share a label
RADIUS, MOST_LETTERS, MOST_LEADS = 5.0, 24, 24
SHARES = (0.62, 0.5, 0.38, 0.26)  # of the way up memory's roof, where its name may stand


class Scale:
    """A logarithmic axis from whole decades or halves of them around the values."""

    def __init__(self, values, start, end):
        low, high = (math.log10(f(values)) for f in (min, max))
        self.low, self.high = math.floor(2 * low - 0.3) / 2, math.ceil(2 * high + 0.3) / 2
        self.start, self.end = start, end

    def __call__(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def decades(self):
        return [10.0**k for k in range(math.ceil(self.low), math.floor(self.high) + 1)]


class Point:
    """A partition: intensity in FLOP a byte (0 without products), rates in FLOP/s or bytes/s."""

    def __init__(self, place, part):
        work = part["work"]
        self.place, self.part = place, part
        self.bytes = work["read_bytes"] + work["written_bytes"]
        self.amount = work["flops"] or self.bytes
        self.intensity = work["flops"] / self.bytes if self.bytes else 0
        self.copies = not work["flops"]
        seconds = 1e-6 * max(work["roofline_memory_us"], work["roofline_products_us"])
        self.bound = self.amount / seconds if seconds > 0 else 0
        median = part.get("performance", {}).get("median")
        self.measured = 1e6 * self.amount / median["us"] if median else None

    def says(self):
        unit = "B/s" if self.copies else "FLOP/s"
        text = f"partition {self.part['id']}, {self.part['pattern']}: at most " + style.scaled(
            self.bound, unit)
        if not self.copies:
            text += f", {style.figure(self.intensity)} FLOP for each byte"
        return text + (f", measured {style.scaled(self.measured, unit)}" if self.measured else "")


def points_of(document):
    found = [Point(place, part) for place, part in enumerate(document["partitions"])
             if part.get("work")]
    return [p for p in found if p.bound > 0]


def line(look, x0, y0, x1, y1):
    return f'<path class="{look}" d="M{x0:.1f},{y0:.1f}L{x1:.1f},{y1:.1f}"/>'


def text(look, x, y, words, anchor="start"):
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def axis_y(scale, left, right, unit):
    items = []
    for value in scale.decades():
        y = scale(value)
        items += [line("grid", left, y, right, y),
                  text("small muted", left - 6, y + 3.5, style.scaled(value, unit), "end")]
    return items


def spread(places, least):
    """The places moved apart by at least so much, in their order."""
    moved = []
    for place in places:
        moved.append(max(place, moved[-1] + least) if moved else place)
    return moved


def markers(points, x_of, y_of, left, right):
    """Circles, lines from measured to attainable, and labels that circles close by share."""
    items, groups = [], []
    for p in points:
        x, bound = x_of(p), y_of(p.bound)
        y = y_of(p.measured) if p.measured else bound
        look = f'class="{style.colour(p.place)} point" data-part="{p.part["id"]}"'
        shape = f'<title>{escape(p.says())}</title>'
        if p.measured and len(points) <= MOST_LEADS:
            shape += line("lead", x, y, x, bound)
        if p.measured:
            shape += f'<circle class="bound" cx="{x:.1f}" cy="{bound:.1f}" r="{RADIUS - 1.5}"/>'
        shape += (f'<circle class="{"dot" if p.measured else "bound"}" cx="{x:.1f}" '
                  f'cy="{y:.1f}" r="{RADIUS}"/>')
        items.append(f"<g {look}>{shape}</g>")
        for group in groups:
            if abs(group[0] - x) < NEAR and abs(group[1] - y) < NEAR:
                group[2].append(p)
                break
        else:
            groups.append((x, y, [p]))
    return items + labels(groups, left, right)


def labels(groups, least, most):
    """For groups of (x, y, points), between two places on the x axis. A label that finds no room is
    left out: the marker has a tip."""
    items, taken = [], [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y, _ in groups]
    for x, y, members in groups:
        words = ranges([p.part["id"] for p in members])
        if len(words) > MOST_LETTERS:
            words = f"{len(members)} partitions"
        wide = style.text_width(words, 10.5, True)
        for left, base in ((x + 8, y + 14), (x + 8, y - 6), (x - 8 - wide, y + 14),
                           (x - 8 - wide, y - 6)):
            box = (left, base - 9, left + wide, base + 1)
            if least <= left and left + wide <= most and not any(
                    box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3]
                    for b in taken):
                taken.append(box)
                items.append(text("small kind", left, base, words))
                break
    return items


def ranges(ids):
    """0, 2–4."""
    runs = []
    for i in sorted(ids):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}"
                     for a, b in runs)


def peaks_of(limits, points):
    """[(name, FLOP/s)]: of the products that some partition may use."""
    int8 = limits.get("int8_ops_per_second", 0)
    works = [p.part["work"] for p in points]
    modes = {p.part["fpmath_mode"] for p in points}
    found = [("f32 FMA", limits["fma_flops_per_second"])]
    if int8 and any(w["flops_one_limb"] for w in works):
        found.append(("int8", int8))
    if int8 and any(w["flops_two_limbs"] for w in works):
        found.append(("two int8 limbs", int8 / 2))
    if limits.get("bf16_flops_per_second") and modes & {"bf16", "any"}:
        found.append(("bf16", limits["bf16_flops_per_second"]))
    return sorted(found, key=lambda peak: -peak[1])


def free_place(points, x_of, y_of, places):
    """The place on the roof, of (intensity, bytes/s), that is farthest from all points."""
    taken = [(x_of(p.intensity), y_of(rate)) for p in points for rate in (p.bound, p.measured)
             if rate]
    spots = [(x_of(at), y_of(at * read)) for at, read in places]
    return max(spots, key=lambda s: min(math.hypot(s[0] - x, s[1] - y) for x, y in taken))


def roof(points, x_of, y_of, read, top):
    """Of memory, with its name: from the left or the lower edge to the highest peak."""
    ridge, first = top / read, max(10.0**x_of.low, 10.0**y_of.low / read)
    x, y = free_place(points, x_of, y_of, [(first**(1 - s) * ridge**s, read) for s in SHARES])
    angle = math.degrees(math.atan2(y_of(10 * read) - y_of(read), x_of(10) - x_of(1)))
    return [line("roof", x_of(first), y_of(first * read), x_of(ridge), y_of(top)),
            f'<text class="small" text-anchor="middle" transform="translate({x - 5:.1f},'
            f'{y - 8:.1f}) rotate({angle:.1f})">reading memory, {style.scaled(read, "B/s")}</text>']


def panel_of_products(points, limits, left, width):
    right, bottom = left + width, HEIGHT - BOTTOM
    peaks, read = peaks_of(limits, points), limits["read_bytes_per_second"]
    top = peaks[0][1]
    ridge = top / read
    xs = [p.intensity for p in points] + [ridge, ridge / 30, 2 * ridge]
    x_of = Scale(xs, left, right)
    rates = [p.bound for p in points] + [p.measured for p in points if p.measured]
    y_of = Scale([top / 60, top, *rates], bottom, TOP)
    items = axis_y(y_of, left, right, "FLOP/s")
    for value in x_of.decades():
        items += [line("grid", x_of(value), TOP, x_of(value), bottom),
                  text("small muted", x_of(value), bottom + 16, f"{value:g}", "middle")]
    items.append(text("small muted", (left + right) / 2, bottom + 36,
                      "operations for each byte that must move (FLOP/B)", "middle"))
    items += roof(points, x_of, y_of, read, top)
    items.append(line("roof", x_of(ridge), y_of(top), right, y_of(top)))
    for name, peak in peaks[1:]:
        items.append(line("peak", x_of(peak / read), y_of(peak), right, y_of(peak)))
    for (name, peak), y in zip(peaks, spread([y_of(peak) for _, peak in peaks], 15)):
        unit = "OP/s" if "int8" in name else "FLOP/s"
        items.append(text("small", right + 8, y + 3.5, f"{name}, {style.scaled(peak, unit)}"))
    return items + markers(points, lambda p: x_of(p.intensity), y_of, left, right)


def panel_of_copies(points, limits, left, width):
    right, bottom = left + width, HEIGHT - BOTTOM
    copy = limits["copy_bytes_per_second"]
    y_of = Scale([copy, copy / 30] + [p.measured for p in points if p.measured], bottom, TOP)
    items = axis_y(y_of, left, right, "B/s")
    items += [line("roof", left, y_of(copy), right, y_of(copy)),
              text("small", left, TOP - 6, f"line: copying, {style.scaled(copy, 'B/s')}"),
              text("small muted", (left + right) / 2, bottom + 36, "partitions without products",
                   "middle")]
    step = width / len(points)
    place = {id(p): left + step * (i + 0.5) for i, p in enumerate(points)}
    return items + markers(points, lambda p: place[id(p)], y_of, left, right + 20)


def draw(document):
    """(SVG elements, width, height); None without limits or partitions to hold against them."""
    limits, points = document.get("limits"), points_of(document)
    if not limits or not points:
        return None
    items, left = [], LEFT
    copies, products = [p for p in points if p.copies], [p for p in points if not p.copies]
    side = SIDE if products else MAIN
    if copies:
        items += panel_of_copies(copies, limits, left, side)
        left += side + (GAP if products else 20)
    if products:
        width = MAIN - (SIDE if copies else 0)
        items += panel_of_products(products, limits, left, width)
        left += width + RIGHT
    measured = any(p.measured for p in points)
    note = "filled: measured (median); small and hollow: what the machine would allow" if measured \
        else "hollow: the model's bounds only, nothing was measured"
    items.append(text("small muted", LEFT, 16, note))
    return "\n".join(items), left, HEIGHT
