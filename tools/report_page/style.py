"""Colours, fonts and units of the report: what the page, the chart and the pictures share."""
import string

FONT = '"Helvetica Neue", Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif'
COLOURS = 8  # of partitions, in turn
HUES = ("#3f6fa8", "#2f8a7d", "#b07d2b", "#a9506b", "#7460a8", "#5b8a46", "#b8653a", "#647488")
LIGHT = {
    "ground": "#ffffff", "card": "#ffffff", "panel": "#f6f7f9", "line": "#d8dce2",
    "ink": "#1d2530", "muted": "#66707d", "edge": "#8b95a1", "bad": "#b3261e", "hover": "#edf1f6"
}
DARK = {
    "ground": "#14181e", "card": "#1b2028", "panel": "#1b2028", "line": "#343c47",
    "ink": "#e4e8ed", "muted": "#9aa4b0", "edge": "#7b8693", "bad": "#ff8a80", "hover": "#262d37"
}

# Concrete colours, as programs that only draw SVG know no CSS variables.
DRAWING = string.Template("""
.drawing .ground { fill: $ground; }
.drawing text { fill: $ink; }
.drawing .muted { fill: $muted; }
.drawing .node { fill: $card; stroke: $edge; }
.drawing .pill { fill: $card; stroke: $line; }
.drawing .constant { fill: $panel; stroke: $line; }
.drawing .edge { stroke: $edge; }
.drawing .arrow { fill: $edge; }
.drawing .grid { stroke: $line; }
.drawing .axis { stroke: $muted; }
.drawing .roof { stroke: $ink; }
.drawing .peak { stroke: $muted; }
.drawing .partition.bad .area { stroke: $bad; }
.drawing .partition.bad .title { fill: $bad; }
""")
PARTITION = string.Template("""
.drawing .c$k .area { fill: $tint; stroke: $hue; }
.drawing .c$k .over { stroke: $tint; }
.drawing .c$k .node { stroke: $hue; }
.drawing .c$k .title { fill: $text; }
.drawing .c$k .dot { fill: $hue; stroke: $hue; }
.drawing .c$k .bound { fill: $ground; stroke: $hue; }
.drawing .c$k .lead { stroke: $hue; }
.chip.c$k { background: $hue; }
""")
SHAPES = """
.drawing { font-family: FONT; font-size: 12px; }
.drawing .title { font-weight: 600; font-size: 13px; }
.drawing .over { stroke-width: 5px; stroke-linejoin: round; paint-order: stroke; }
.drawing .kind { font-weight: 600; }
.drawing .small { font-size: 10.5px; }
.drawing .edge { fill: none; stroke-width: 1; }
.drawing .between { stroke-width: 1.8; }
.drawing .area { stroke-width: 1.2; }
.drawing .partition.bad .area { stroke-dasharray: 5 4; }
.drawing .constant { stroke-dasharray: 3 2; }
.drawing .grid { stroke-width: 1; }
.drawing .axis, .drawing .peak { stroke-width: 1; fill: none; }
.drawing .peak { stroke-dasharray: 5 4; }
.drawing .roof { stroke-width: 1.8; fill: none; }
.drawing .dot, .drawing .bound { stroke-width: 1.8; }
.drawing .lead { stroke-width: 1; stroke-dasharray: 2 2; }
""".replace("FONT", FONT)


def mix(a, b, share):
    """Colour a with this share of b."""
    pairs = zip(*([int(c[i:i + 2], 16) for i in (1, 3, 5)] for c in (a, b)))
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in pairs)


def scheme_css(scheme):
    dark = scheme is DARK
    text = DRAWING.substitute(scheme)
    for k, hue in enumerate(HUES):
        hue = mix(hue, "#ffffff", 0.25) if dark else hue
        text += PARTITION.substitute(scheme, k=k, hue=hue,
                                     tint=mix(scheme["ground"], hue, 0.17 if dark else 0.11),
                                     text=mix(hue, scheme["ink"], 0.35))
    return text


def drawing_css():
    """Of every drawing, light and dark."""
    return (SHAPES + scheme_css(LIGHT) +
            "@media (prefers-color-scheme: dark) {" + scheme_css(DARK) + "}\n")


def page_variables():
    def block(scheme):
        return ":root { " + " ".join(f"--{name}: {value};" for name, value in scheme.items()) + " }"

    return (f"{block(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {block(DARK)} }}\n"
            f":root {{ --font: {FONT}; color-scheme: light dark; }}\n")


def colour(index):
    """The class of the partition at this place in the order of execution."""
    return f"c{index % COLOURS}"


# ---- text ----------------------------------------------------------------------------------------

NARROW, WIDE = "iljtfrI.,:;|'()[]/ -·", "mwMW@%"


def text_width(text, size=12.0, bold=False):
    """Pixels that text takes at most in the usual fonts without serifs; no font is asked, so that
    a drawing is the same everywhere."""
    ems = sum(0.36 if c in NARROW else 0.95 if c in WIDE else 0.72 if c.isupper() else 0.61
              for c in text)
    return ems * size * (1.06 if bold else 1.0)


def scaled(value, unit, digits=3):
    """1234567 B -> 1.23 MB."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * factor:
            return f"{figure(value / factor, digits)} {prefix}{unit}"
    return f"{figure(value, digits)} {unit}"


def figure(value, digits=3):
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e" in text else text


def microseconds(us):
    return f"{figure(us)} µs" if us < 999.5 else f"{figure(us / 1e3)} ms" \
        if us < 999.5e3 else f"{figure(us / 1e6)} s"


def dims(tensor):
    """f16 1×4096."""
    if tensor["dims"] is None:
        return f"{tensor['data_type']} of any rank"
    return tensor["data_type"] + " " + ("×".join(
        "?" if d is None else str(d) for d in tensor["dims"]) or "scalar")


def name_of(part):
    """The pattern; of an op alone its kind."""
    return part["ops"][0]["kind"] if part["pattern"] == "single" else part["pattern"]
