#!/usr/bin/python3
"""chart.py [--print]: whether the Helm chart says what the manifests say.

Helm itself is not in Debian. So the chart keeps to a small part of its templates' language, and this program
renders that part with the chart's own values, and again with dra.enabled: the results must be the manifests of
deploy/kubernetes, and of deploy/kubernetes/dra. Each value must be used by a template, and each value that a
template uses must be there. --print prints the result of the chart's own values.

Exits with 77 and a reason where Debian's python3-yaml is missing.
"""
import hashlib
import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    print("skipped: there is no python3-yaml")
    sys.exit(77)

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "vgpu"
TAG = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")


class Chart:
    """Renders templates, line by line; used has the paths of values that they asked for."""

    def __init__(self, values):
        self.values = {"Values": values, "Release": {"Namespace": "vgpu"}}
        self.used = set()

    def value(self, path, dot):
        if path == ".":
            return dot
        at = self.values
        for name in path.strip(".").split("."):
            if name not in at:
                raise SystemExit(f"a template uses {path}, which values.yaml does not have")
            at = at[name]
        self.used.add(path.removeprefix(".Values."))
        return at

    def expression(self, text, dot):
        first, *filters = [part.split() for part in text.split("|")]
        if first[0] == "toYaml":
            result = yaml.safe_dump(self.value(first[1], dot), sort_keys=False).strip()
        else:
            result = self.value(first[0], dot)
        for name, *arguments in filters:
            if name == "nindent":
                blanks = " " * int(arguments[0])
                result = "\n" + "\n".join(blanks + line for line in result.splitlines())
            elif name == "sha256sum":
                result = hashlib.sha256(result.encode()).hexdigest()
            else:
                raise SystemExit(f"chart.py does not know the filter {name}")
        return str(result)

    def render(self, text):
        lines, blocks = [], []  # blocks: whether each is shown, and what "." is in it
        for line in text.splitlines():
            block = re.fullmatch(r"\s*\{\{- (with|if|end)\s*(.*?)\s*\}\}", line)
            dot = blocks[-1][1] if blocks else None
            if block and block[1] == "end":
                blocks.pop()
            elif block:
                wanted = not block[2].startswith("not ")
                value = self.value(block[2].removeprefix("not "), dot)
                blocks.append((bool(value) == wanted, value if block[1] == "with" else dot))
            elif all(shown for shown, _ in blocks):
                lines.append(self.line(line, dot))
        return "\n".join(lines)

    def line(self, line, dot):
        whole = re.fullmatch(r"\s*\{\{- (.*) \}\}", line)
        if whole:
            return self.expression(whole[1], dot).removeprefix("\n")
        return TAG.sub(lambda tag: self.expression(tag[1], dot), line)


def paths(values, prefix=""):
    """The paths of all values; what is in a list, or in nothing, has none of its own."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from paths(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def documents(text):
    return {(doc["kind"], doc["metadata"]["name"]): doc for doc in yaml.safe_load_all(text) if doc}


def plain(names):
    return documents("\n---\n".join((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8") for name in names))


def common(found):
    """Without what the chart adds, and with settings as values: their text may differ."""
    for document in found.values():
        if document["kind"] == "DaemonSet":
            template = document["spec"]["template"]
            template["metadata"].pop("annotations", None)
            pod = template["spec"]
            for container in pod.get("initContainers", []) + pod["containers"]:
                container.pop("imagePullPolicy", None)
                container["image"] = "vgpu"
        elif "device-plugin.yaml" in document.get("data", {}):
            document["data"] = yaml.safe_load(document["data"]["device-plugin.yaml"])
    return found


def render(change):
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    change(values)
    chart = Chart(values)
    texts = [chart.render(path.read_text(encoding="utf-8")) for path in sorted((CHART / "templates").iterdir())]
    return "\n---\n".join(texts), chart, values


def enable(values):
    values["vgpud"]["enabled"] = True


def enable_dra(values):
    enable(values)
    values["dra"]["enabled"] = True


def empty(values):
    values["runtimeClassName"] = ""
    values["tolerations"] = []


def differences(text, manifests):
    ours, theirs = common(documents(text)), common(plain(manifests))
    return [f"{kind} {name}" for kind, name in sorted(ours.keys() | theirs.keys())
            if ours.get((kind, name)) != theirs.get((kind, name))]


def main():
    text, chart, values = render(enable)
    if "--print" in sys.argv:
        print(text)
        return 0
    dra_text, dra_chart, _ = render(enable_dra)
    used_paths = chart.used | dra_chart.used
    unused = [path for path in paths(values)
              if not any(path == used or path.startswith(used + ".") for used in used_paths)]
    for path in unused:
        print(f"no template uses {path} of values.yaml")
    different = differences(text, ["config.yaml", "device-plugin.yaml", "vgpud.yaml"])
    different += differences(dra_text, ["dra/dra.yaml", "vgpud.yaml"])
    for what in different:
        print(f"{what} is another one in deploy/helm than in deploy/kubernetes")
    bare = documents(render(empty)[0])
    pods = [document["spec"]["template"]["spec"] for document in bare.values() if document["kind"] == "DaemonSet"]
    excess = len(pods) != 1 or "runtimeClassName" in pods[0] or "tolerations" in pods[0]
    if excess:
        print("the chart renders what its values leave out")
    return 1 if unused or different or excess else 0


sys.exit(main())
