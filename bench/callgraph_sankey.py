"""The Sankey of 200 supernodes out of 100,000 call sites: layout and drawing within one frame.

The answer of the server is made here, written to a file, and laid out in Node by the page's own
code; the limit is one frame of 16.7 ms. What a widget sends is measured beside it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.callgraph_ensemble import whole_tree
from bench.report import Results, timed
from marey.callgraph.analysis.outline import outline_tree
from marey.callgraph.analysis.supernodes import Grouping, sankey_document
from marey.callgraph.documents import SankeyDocument
from marey.callgraph.graphs import CallGraphs, unite
from marey.callgraph.profiles import Profile, ProfileInfo
from marey.notebook.packing import pack_outline

NODES = 100_000
FRAME_MS = 1000 / 60
WIDGET_BYTES = 2_000_000
WEB = Path(__file__).resolve().parents[1] / "web"
SCRIPT = """
import { readFileSync } from "node:fs";
import { layoutSankey } from "%(module)s";
const { nodes, flows } = JSON.parse(readFileSync("%(data)s", "utf8"));
const run = () => layoutSankey(
  nodes.map((n) => ({ name: n.name, value: n.inclusive.mean })),
  flows.map((f) => ({ ...f, ofTarget: f.of_target })),
  { width: 1400, height: 430, labels: 180 });
const times = [];
for (let i = 0; i < 30; i++) {
  const t = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(t);
  times.push((user + system) / 1000);
}
console.log(JSON.stringify({ first: times[0], median: times.sort((a, b) => a - b)[15] }));
"""


def make_graphs() -> CallGraphs:
    """Return four profiles of a large random tree."""
    import numpy as np

    tree, random = whole_tree(NODES), np.random.default_rng(5)
    values = [random.lognormal(10, 2, NODES) for _ in range(4)]
    return unite(
        [Profile(tree, None, v, v / 2, v, ProfileInfo(f"run{n}")) for n, v in enumerate(values)]
    )


def main() -> int:
    """Measure the layout, the server's part, and the size of the widget."""
    results = Results()
    graphs = make_graphs()
    grouping = Grouping("name", 0.0, 200)
    document = sankey_document(graphs, grouping)
    server = timed(lambda: sankey_document(graphs, grouping), repeat=2, warm=False)
    found = lay_out(document)
    size = f"{len(document['nodes'])} supernodes, {len(document['flows'])} flows, {NODES:,} nodes"
    results.against(
        "layout in the page, first time",
        ratio=found["first"] / FRAME_MS,
        target=1.0,
        rival="of a frame of 16.7 ms",
        size=size,
        at_10x="the server folds to 200 supernodes whatever the tree",
        higher_is_better=False,
    )
    results.line(
        "the server's answer", f"{server.cpu_s:.2f} s CPU", size=size, at_10x="10 times the CPU"
    )
    data, facts = pack_outline(outline_tree(graphs, limit=NODES))
    results.against(
        "what a widget of 100,000 nodes sends",
        ratio=(len(data) + len(json.dumps(facts))) / WIDGET_BYTES,
        target=1.0,
        rival="of 2 MB",
        size=f"{NODES:,} nodes",
        at_10x="100,000 rows are sent at most; the rest are surrogates",
        higher_is_better=False,
    )
    return results.missed


def lay_out(document: SankeyDocument) -> dict[str, float]:
    """Run the page's layout in Node on the document; milliseconds of CPU."""
    node = shutil.which("node")
    assert node is not None, "node is needed"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "data.json").write_text(json.dumps(document))
        module = WEB / "src" / "charts" / "sankey" / "layout.ts"
        compiled = place / "layout.mjs"
        esbuild = "import('vite').then((v) => v.transformWithOxc(require('fs').readFileSync("
        esbuild += f"{json.dumps(str(module))}, 'utf8'), 'layout.ts'))"
        esbuild += f".then((r) => require('fs').writeFileSync({json.dumps(str(compiled))}, r.code))"
        subprocess.run([node, "-e", esbuild], cwd=WEB, check=True)
        text = SCRIPT % {"module": str(compiled), "data": str(place / "data.json")}
        (place / "run.mjs").write_text(text)
        said = subprocess.run(
            [node, str(place / "run.mjs")], capture_output=True, text=True, check=True
        )
        found: dict[str, float] = json.loads(said.stdout)
        return found


if __name__ == "__main__":
    raise SystemExit(main())
