"""Checks that stdin is Prometheus' text format (version 0.0.4): each line's grammar, a HELP and a
TYPE before a family's samples, which stand together, no series twice, and the names' rules."""

import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
HELP = re.compile(rf"# HELP ({NAME}) (?:[^\\]|\\\\|\\n)+")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)")
SAMPLE = re.compile(rf"({NAME})(\{{{LABEL}(?:,{LABEL})*\}})? ([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)")

helped, families, series = set(), {}, set()
family = None


def wrong(line, why):
    sys.exit(f"format.py: {why}: {line}")


text = sys.stdin.buffer.read().decode("utf-8", "strict")
if not text.endswith("\n"):
    sys.exit("format.py: the last line has no end")
for line in text[:-1].split("\n"):
    if match := HELP.fullmatch(line):
        if match[1] in helped:
            wrong(line, "a family twice")
        helped.add(match[1])
    elif match := TYPE.fullmatch(line):
        family = match[1]
        if family in families or family not in helped:
            wrong(line, "a type twice, or without a help")
        families[family] = match[2]
        if (match[2] == "counter") != family.endswith("_total"):
            wrong(line, "only counters end with _total")
    elif match := SAMPLE.fullmatch(line):
        suffix = match[1][len(family) :] if families[family] == "histogram" else ""
        if match[1] != family + suffix or suffix not in ("", "_bucket", "_sum", "_count"):
            wrong(line, "a sample that is not with its family")
        if (suffix == "") == (families[family] == "histogram"):
            wrong(line, "a histogram has buckets, a sum and a count alone")
        labels = tuple(sorted(re.findall(LABEL, match[2] or "")))
        names = [label.split("=")[0] for label in labels]
        if len(set(names)) != len(names):
            wrong(line, "a label twice")
        if (match[1], labels) in series:
            wrong(line, "a series twice")
        series.add((match[1], labels))
        if families[family] == "counter" and float(match[3]) < 0:
            wrong(line, "a counter below 0")
    else:
        wrong(line, "no line of the format")
