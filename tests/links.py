#!/usr/bin/env python3
"""links.py SOURCE: every relative link and anchor in the Markdown files of SOURCE leads somewhere.

A link is [text](target) outside code. Anchors are GitHub's names of headings.
"""
import os
import re
import sys

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


def text_lines(path):
    """The numbered lines of a file without fenced blocks, indented blocks and code spans."""
    fenced = False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if FENCE.match(line):
                fenced = not fenced
            elif not fenced and not line.startswith("    "):
                yield number, line.rstrip("\n")


def anchors(path):
    found = {}
    for _, line in text_lines(path):
        heading = HEADING.match(line)
        if heading:
            name = LINK.sub(lambda m: m.group(0)[1:].split("]")[0], heading.group(1)).lower()
            name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
            again = found.get(name, 0)
            found[name] = again + 1
            if again:
                found[f"{name}-{again}"] = 1
    return found


def is_broken(path, target):
    if re.match(r"[a-z]+:", target):
        return False
    file, _, anchor = target.partition("#")
    there = os.path.join(os.path.dirname(path), file) if file else path
    if not os.path.exists(there):
        return True
    return bool(anchor) and (not there.endswith(".md") or anchor not in anchors(there))


def pages(source):
    for directory, inner, names in os.walk(source):
        inner[:] = [name for name in inner if not name.startswith((".", "build", "obj-"))]
        yield from (os.path.join(directory, name) for name in names if name.endswith(".md"))


def main(source):
    links = broken = 0
    for path in sorted(pages(source)):
        for number, line in text_lines(path):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                links += 1
                if is_broken(path, target):
                    broken += 1
                    print(f"{os.path.relpath(path, source)}:{number}: {target} leads nowhere", file=sys.stderr)
    if not links:
        print("no links were found", file=sys.stderr)
    return 1 if broken or not links else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
