#!/usr/bin/env python3
"""links.py: every relative link of the documents leads to a file, and every anchor to a heading."""
import os
import re
import sys

from common import ROOT, documents, prose, read, verdict

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.M)


def anchors(path):
    """As GitHub makes them from headings."""
    made = set()
    for heading in HEADING.findall(prose(read(path))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        made.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return made


def main():
    errors, checks = [], 0
    for document in documents():
        for link in LINK.findall(prose(read(document))):
            if re.match(r"\w+:", link):
                continue
            checks += 1
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(document), path))
            target = target if path else document
            if not os.path.exists(os.path.join(ROOT, target)):
                errors.append(f"{document}: {link}: no such file")
            elif anchor and target.endswith(".md") and anchor not in anchors(target):
                errors.append(f"{document}: {link}: no such heading")
    return verdict("links", errors, checks)


if __name__ == "__main__":
    sys.exit(main())
