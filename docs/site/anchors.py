#!/usr/bin/env python3
"""anchors.py SITE: every link between the HTML pages of SITE leads to a file, and to an id in it."""
import os
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])


def main(site):
    paths = [os.path.join(at, name) for at, _, names in os.walk(site) for name in names if name.endswith(".html")]
    pages = {path: Page(path) for path in paths}
    broken = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith("/") or link == "#":
                continue
            there = os.path.normpath(os.path.join(os.path.dirname(path), unquote(parts.path))) if parts.path else path
            if not os.path.exists(there) or (
                    parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].ids):
                broken += 1
                print(f"{os.path.relpath(path, site)}: {link} leads nowhere", file=sys.stderr)
    return 1 if broken or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
