"""The report as one HTML page that needs nothing else: style, script and pictures are inside."""
import os
from html import escape

from . import arena, drawing, roofline, runner, style

HERE = os.path.dirname(os.path.abspath(__file__))


def own(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def tag(name, content, **attributes):
    """content is HTML; attributes are plain text. A trailing "_" is dropped from their names."""
    text = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
                   for key, value in attributes.items())
    return f"<{name}{text}>{content}</{name}>"


def table(heads, rows, numbers=()):
    def cells(kind, row):
        return "".join(tag(kind, cell, class_="number") if i in numbers else tag(kind, cell)
                       for i, cell in enumerate(row))

    head = tag("thead", tag("tr", cells("th", heads)))
    return tag("table", head + tag("tbody", "".join(tag("tr", cells("td", row)) for row in rows)))


def listing(texts):
    return tag("ul", "".join(tag("li", escape(text)) for text in texts))


# ---- figures of a partition ----------------------------------------------------------------------


def bound_us(part):
    work = part.get("work")
    return max(work["roofline_memory_us"], work["roofline_products_us"]) if work else 0


def bound_by(part):
    work = part["work"]
    return "memory" if work["roofline_memory_us"] >= work["roofline_products_us"] else "products"


def measured(part):
    """The median run, or None."""
    return part.get("performance", {}).get("median")


def has_share(median):
    """What a mask leaves nothing of has no roofline."""
    return bool(median) and "of_roofline" in median


def chip(place):
    return tag("span", "", class_=f"chip {style.colour(place)}")


# ---- head ----------------------------------------------------------------------------------------


def facts_of_all(document):
    graph, parts = document["graph"], document["partitions"]
    limits, whole = document.get("limits"), measured(document)
    mode = graph["fpmath_mode"] + (" on integers too" if graph["apply_to_int"] else "")
    found = [("ops", graph["ops"]), ("partitions", len(parts)), ("fpmath mode", mode),
             ("threads", document["threads"])]
    if limits:
        found.append(("limits", "given" if limits["isa"] == "given" else limits["isa"]))
    bounds = [bound_us(part) for part in parts]
    if all(bounds):
        found.append(("roofline, all partitions", style.microseconds(sum(bounds))))
    if whole:
        found.append(("measured, median", style.microseconds(whole["us"])))
    if has_share(whole):
        found.append(("of roofline", style.figure(whole["of_roofline"])))
    return found


def header(document, title):
    figures = "".join(tag("div", tag("dt", escape(name)) + tag("dd", escape(str(value))))
                      for name, value in facts_of_all(document))
    why = runner.failure(document)
    banner = tag("div", "The graph does not run: " + escape(why), class_="banner") if why else ""
    warnings = "".join(tag("p", escape(text), class_="note") for text in document["warnings"])
    left = document["graph"]["ops"] - sum(len(part["ops"]) for part in document["partitions"])
    if left > 0:
        warnings += tag("p", f"{left} ops are left out: no output of the graph depends on them.",
                        class_="note")
    return tag("header", tag("h1", escape(title)) + tag("code", escape(document["command"])) +
               tag("dl", figures, class_="figures") + banner + warnings)


# ---- table of partitions -------------------------------------------------------------------------


def row(place, part, timed):
    work, median = part.get("work"), measured(part)
    cells = [chip(place) + str(part["id"]), escape(style.name_of(part)), str(len(part["ops"]))]
    if work:
        cells += [style.scaled(work["read_bytes"] + work["written_bytes"], "B"),
                  style.scaled(work["flops"], "FLOP") if work["flops"] else "–",
                  style.microseconds(bound_us(part)) if bound_us(part) else "–"]
    else:
        cells += ["–"] * 3
    if timed:
        cells += [style.microseconds(median["us"]) if median else "–",
                  style.figure(median["of_roofline"], 2) if has_share(median) else "–"]
    body = "".join(tag("td", cell, class_="number") if i > 1 else tag("td", cell)
                   for i, cell in enumerate(cells))
    return tag("tr", body, data_part=part["id"], tabindex=0)


def partitions(document):
    timed = any(measured(part) for part in document["partitions"])
    heads = ["id", "pattern", "ops", "bytes", "products", "roofline"]
    heads += ["median", "of roof"] if timed else []
    head = "".join(tag("th", name, class_="number") if i > 1 else tag("th", name)
                   for i, name in enumerate(heads))
    rows = "".join(row(place, part, timed) for place, part in enumerate(document["partitions"]))
    return tag("h2", "Partitions, in the order of execution") + tag(
        "div", tag("table", tag("thead", tag("tr", head)) + tag("tbody", rows)), class_="scroll")


# ---- details of a partition ----------------------------------------------------------------------


def time_and_work(part):
    work, median = part.get("work"), measured(part)
    rows = []
    if work:
        rows.append(("reads", style.scaled(work["read_bytes"], "B")))
        rows.append(("writes", style.scaled(work["written_bytes"], "B")))
        products = style.scaled(work["flops"], "FLOP") if work["flops"] else "none"
        for key, name in (("flops_one_limb", "as 8-bit integers"),
                          ("flops_two_limbs", "as two 8-bit limbs")):
            if work[key]:
                products += f", of which {style.scaled(work[key], 'FLOP')} {name}"
        rows.append(("products", products))
    if bound_us(part) and not work["flops"]:
        rows.append(("roofline", f"{style.microseconds(bound_us(part))}, as fast as copying"))
    elif bound_us(part):
        rows.append(("roofline", f"{style.microseconds(bound_us(part))}, set by {bound_by(part)} "
                     f"(memory {style.microseconds(work['roofline_memory_us'])}, products "
                     f"{style.microseconds(work['roofline_products_us'])})"))
    if median:
        best = part["performance"]["min"]
        share = ""
        if has_share(median):
            share = f": {style.figure(median['of_roofline'])} of the roofline"
        rows.append(("measured", f"median {style.microseconds(median['us'])}, best "
                     f"{style.microseconds(best['us'])} of {part['performance']['runs']} runs"
                     f"{share}"))
    if part.get("scratch_bytes"):
        rows.append(("scratch memory", f"{style.scaled(part['scratch_bytes'], 'B')}, of which "
                     f"{style.scaled(part['scratch_bytes_per_thread'], 'B')} for each thread"))
    return table(["", ""], [(escape(a), escape(b)) for a, b in rows]).replace(
        "<thead><tr><th></th><th></th></tr></thead>", "") if rows else ""


def ops(part):
    rows = []
    for op in part["ops"]:
        ports = " ".join(map(str, op["inputs"])) + " → " + " ".join(map(str, op["outputs"]))
        rows.append((str(op["id"]), escape(op["kind"]), escape(op["role"] or ""), ports,
                     escape(op.get("name") or "")))
    return tag("h3", "Ops") + table(["op", "kind", "role", "tensors", "name"], rows)


def kernels(part):
    """Steps in a row that take the same kernel the same way stand together."""
    groups = []
    for i, step in enumerate(part["steps"]):
        same = (step["kernel"], step.get("way"))
        if not groups or groups[-1][0] != same:
            groups.append((same, []))
        groups[-1][1].append((i, step))
    found = []
    for (kernel, way), steps in groups:
        first, last = steps[0][0], steps[-1][0]
        name = f"step {first}: " if first == last else f"steps {first} to {last}: "
        text = tag("p", name + tag("strong", escape(kernel)))
        text += tag("p", "way: " + escape(way)) if way else ""
        notes = dict.fromkeys(step["detail"] for _, step in steps)
        text += tag("details", tag("summary", "as compiled") + "".join(
            tag("p", escape(note), class_="note") for note in notes))
        found.append(tag("div", text, class_="step"))
    return tag("h3", "Kernels and their ways") + "".join(found) if found else ""


def reasons(part):
    found = []
    if part["reason"]:
        found.append("not supported: " + part["reason"])
    found += [f"pattern {r['pattern']} does not match at {r['at']}: {r['reason']}"
              for r in part["refused_patterns"]]
    found += [f"not joined as {r['join']} with {r['with']}: {r['reason']}"
              for r in part.get("not_joined", ())]
    found += [f"the partition ends: {text}" for text in part["stopped"]]
    found += [f"kernel {r['kernel']} was not chosen: {r['reason']}"
              for r in part["refused_kernels"]]
    if not found:
        found = ["No larger pattern and no faster kernel was refused."]
    return tag("h3", "Reasons") + listing(dict.fromkeys(found))


def ports(part, sizes):
    rows = [(what, str(t["id"]), escape(style.dims(t)) + (" constant" if t["constant"] else ""),
             style.scaled(sizes[t["id"]], "B") if t["id"] in sizes else "–")
            for what, key in (("reads", "inputs"), ("writes", "outputs")) for t in part[key]]
    return tag("h3", "Inputs and outputs") + table(["", "tensor", "type", "bytes"], rows, (3,))


def words(part):
    lines = part["explain"] + part["report"]
    return tag("details", tag("summary", "What the library says") +
               tag("pre", escape("\n".join(lines)))) if lines else ""


def detail(place, part, sizes):
    mode = part["fpmath_mode"] + (" on integers too" if part["apply_to_int"] else "")
    head = chip(place) + f"Partition {part['id']}: {escape(style.name_of(part))}"
    head += tag("span", escape(f"fpmath {mode}"), class_="tag")
    if not part["supported"]:
        head += tag("span", "not supported", class_="tag bad")
    body = tag("h2", head) + time_and_work(part) + kernels(part) + reasons(part) + ops(part)
    return tag("section", body + ports(part, sizes) + words(part), class_="detail",
               id=f"part-{part['id']}")


def facts(document):
    sizes = {t["id"]: t["bytes"] for t in document["tensors"] if "bytes" in t}
    text = partitions(document) + "".join(detail(place, part, sizes)
                                          for place, part in enumerate(document["partitions"]))
    return tag("div", text, class_="facts")


# ---- pictures ------------------------------------------------------------------------------------


def graph(document, dot):
    tools = tag("div", "".join(
        tag("button", text, id=name, type="button", title=title)
        for name, text, title in (("fold", "fold", "partitions as one box each, or with their ops"),
                                  ("zoom-out", "−", "smaller"), ("zoom-in", "+", "larger"),
                                  ("zoom-fit", "fit", "as wide as the frame"),
                                  ("zoom-full", "1:1", "as drawn"))), class_="bar-of-tools")
    drawn = "".join(drawing.svg(*drawing.draw(document, dot, folded=folded), look=look)
                    for folded, look in ((False, "with-ops"), (True, "folded")))
    return tag("div", tag("h2", "Graph") + tools, class_="headline") + tag(
        "p", "A coloured box is a partition; click on it for its details. Pills are inputs and "
        "outputs, dashed ones constants.", class_="note") + tag(
            "div", drawn, class_="frame graph-frame")


def chart(document):
    drawn = roofline.draw(document)
    if not drawn:
        return ""
    given = document["limits"]["isa"] == "given"
    note = ("The limits are given, not measured." if given else
            f"The limits are measured with {document['threads']} threads on the machine that made "
            "this page.")
    note += (" Each byte of inputs and outputs moves once, and products take the fastest "
             "instructions that the fpmath mode allows; a partition that finds its data in caches "
             "may do better.")
    without = [str(part["id"]) for part in document["partitions"] if not bound_us(part)]
    if without:
        note += (f" Without a point: {', '.join(without)}, where dims are unknown or masks leave "
                 "nothing; graph_runner's option --in=ID:=VALUE gives a length.")
    return tag("h2", "Roofline") + tag("p", note, class_="note") + tag(
        "div", drawing.svg(*drawn), class_="frame chart", id="roofline")


def sequence(document):
    drawn = arena.draw(document)
    if not drawn and "scratch_bytes" not in document.get("sequence", {"scratch_bytes": 0}):
        return tag("h2", "Sequence and scratch arena") + tag(
            "p", "The arena depends on dims that are unknown until execute.", class_="note")
    if not drawn:
        return ""
    total, apart = arena.saved(document["sequence"])
    note = (f"One call runs the partitions from left to right. What they hand on lives in an arena "
            f"of {style.scaled(total, 'B')}; side by side these tensors would take "
            f"{style.scaled(apart, 'B')}. A bar reaches from the partition that writes a tensor to "
            "the last one that reads it.")
    return tag("h2", "Sequence and scratch arena") + tag("p", note, class_="note") + tag(
        "div", drawing.svg(*drawn), class_="frame chart", id="arena")


def make(document, title, dot):
    pictures = tag("div", graph(document, dot) + chart(document) + sequence(document),
                   class_="pictures")
    css = style.page_variables() + style.drawing_css() + own("page.css")
    head = ('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(title)}</title><style>{css}</style>")
    return (f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n'
            f"<body>{header(document, title)}\n<main>{pictures}\n{facts(document)}</main>\n"
            f"<script>{own('page.js')}</script></body></html>\n")


def picture(document, title, dot, direction, folded):
    """A static SVG: the graph, and below it the arena where there is one."""
    elements, width, height = drawing.draw(document, dot, direction, folded)
    margin, top = 16, 44
    items = [f'<text class="title" x="{margin}" y="26">{escape(title)}</text>',
             f'<g transform="translate({margin},{top})">{elements}</g>']
    wide, high = width + 2 * margin, height + top + margin
    below = arena.draw(document, max(width, 480), 170)
    if below:
        total, apart = arena.saved(document["sequence"])
        words_ = (f"Scratch arena of {style.scaled(total, 'B')} for what partitions hand on, "
                  f"{style.scaled(apart, 'B')} side by side")
        items.append(f'<text class="title" x="{margin}" y="{high + 16:.0f}">{words_}</text>'
                     f'<g transform="translate(0,{high + 24:.0f})">{below[0]}</g>')
        wide, high = max(wide, below[1] + margin), high + 24 + below[2]
    ground = f'<rect class="ground" width="{wide:.0f}" height="{high:.0f}" rx="8"/>'
    return drawing.svg(ground + "".join(items), wide, high, style_text=style.drawing_css())
