"""Call graphs against Thicket and Hatchet: loading and uniting Caliper profiles, path queries.

The rivals pin an older pandas, so they run in a process of their own, from the folder named by
``MAREY_RIVALS`` (``pip install --target FOLDER llnl-hatchet llnl-thicket``). Their clock starts
after their imports, as ours does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.report import Results, timed
from marey.callgraph.exports import to_literal
from marey.callgraph.graphs import CallGraphs, unite, unite_made
from marey.callgraph.makers.detection import find_profiles, read_profiles, run_names
from marey.callgraph.profiles import MadeProfiles, RawGraph, make_profiles
from marey.callgraph.queries.query import parse_query
from marey.callgraph.queries.selection import keep_selected, select_nodes

ROOT = Path(__file__).resolve().parent.parent
QUERY_NODES = 10_000

UNITING = """
import glob, json, sys, time
import thicket
from hatchet import GraphFrame
files = json.loads(sys.argv[1])
start = time.process_time()
frames = [GraphFrame.from_caliperreader(file) for file in files]
parts = [thicket.Thicket.thicketize_graphframe(f, p) for f, p in zip(frames, files)]
loaded = time.process_time()
while len(parts) > 1:
    parts.append(thicket.Thicket.concat_thickets(
        thickets=[parts.pop(0), parts.pop(0)], axis="index", calltree="union",
        fill_perfdata=True, disable_tqdm=True))
done = time.process_time()
print(json.dumps({"load": loaded - start, "unite": done - loaded, "nodes": len(parts[0].graph)}))
"""

QUERYING = """
import json, sys, time
from hatchet import GraphFrame
frame = GraphFrame.from_literal(json.load(open(sys.argv[1])))
query = json.loads(sys.argv[2])
start = time.process_time()
found = frame.filter([q if isinstance(q, (str, dict)) else tuple(q) for q in query], squash=False)
done = time.process_time()
squashed = found.squash()
print(json.dumps({"query": done - start, "squash": time.process_time() - done,
                  "nodes": len(squashed.graph)}))
"""

# Objects of the rivals against the same files read by our own maker, value by value.
OBJECTS = """
import json, sys
from pathlib import Path
import numpy as np
import thicket
from hatchet import GraphFrame
from marey.callgraph.graphs import unite_made
from marey.callgraph.makers.detection import find_profiles, read_profiles
from marey.callgraph.makers.hatchet import read_frame_object
from marey.callgraph.profiles import ProfileInfo

def values(graphs):
    found = {}
    for node, value in zip(graphs.node, graphs.inclusive):
        found.setdefault(tuple(graphs.path(int(node))), []).append(float(value))
    return {path: sorted(some) for path, some in found.items()}

def count_differences(ours, theirs):
    same = [len(some) == len(theirs.get(path, ())) and np.allclose(some, theirs[path], rtol=1e-9)
            for path, some in ours.items()]
    return same.count(False) + len(theirs.keys() - ours.keys())

files = json.loads(sys.argv[1])
ours = values(unite_made([read_profiles(find_profiles(Path(f))[0], f) for f in files]))
frames = [GraphFrame.from_caliperreader(file) for file in files]
info = ProfileInfo("run")
theirs = values(unite_made([read_frame_object(frame, info, "ns") for frame in frames]))
parts = [thicket.Thicket.thicketize_graphframe(f, p) for f, p in zip(frames, files)]
joined = thicket.Thicket.concat_thickets(parts, axis="index", disable_tqdm=True)
united = values(unite_made([read_frame_object(joined, info, "ns")]))
print(json.dumps({
    "values": sum(map(len, ours.values())),
    "graphframe": count_differences(ours, theirs),
    "thicket": count_differences(ours, united),
}))
"""


def rivals_folder() -> Path | None:
    """Where the rivals are installed, if they are."""
    named = os.environ.get("MAREY_RIVALS")
    folder = Path(named) if named else ROOT / ".venv" / "extra-rivals"
    return folder if (folder / "thicket").is_dir() else None


def run_rival(folder: Path, script: str, *arguments: str) -> dict[str, float]:
    """Run a script with the rivals on its path; it prints one JSON document last."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def caliper_files() -> list[Path]:
    """The sixty real Caliper profiles, where the data is."""
    data = Path(os.environ.get("MAREY_DATA", ROOT.parent / "shared" / "data"))
    return sorted((data / "callgraphs" / "thicket" / "data").rglob("*.cali"))


def load(files: list[Path]) -> list[MadeProfiles]:
    """Read every profile."""
    found = [one for file in files for one in find_profiles(file)]
    return [read_profiles(one, name) for one, name in zip(found, run_names(found), strict=True)]


def random_graph(nodes: int) -> CallGraphs:
    """One profile of a random tree with a few hundred names."""
    random = np.random.default_rng(5)
    parent = [-1, *(int(n * random.random() ** 0.5) for n in range(1, nodes))]
    # A number per call site keeps siblings apart: both sides see the same nodes.
    names = [f"{'MPI_' if n % 97 == 0 else 'f'}{n % 300}_{n}" for n in range(nodes)]
    own = random.random(nodes)
    raw = RawGraph(names, parent, range(nodes), exclusive=own, calls=np.ones(nodes), unit="s")
    return unite_made([make_profiles(raw, "random")])


def compare_uniting(results: Results, folder: Path) -> None:
    """Load and unite the real Caliper profiles."""
    files = caliper_files()
    if len(files) < 60:
        print("  real data not found through MAREY_DATA: not compared", flush=True)
        return
    rival = run_rival(folder, UNITING, json.dumps([str(f) for f in files]))
    ours = timed(lambda: unite_made(load(files)))
    made = load(files)
    profiles = [profile for one in made for profile in one.profiles]
    uniting = timed(lambda: unite(profiles), repeat=20)
    size = f"{len(files)} profiles × 74 call sites"
    results.against(
        "Caliper profiles loaded and united, CPU",
        ratio=(rival["load"] + rival["unite"]) / ours.cpu_s,
        target=20.0,
        rival=f"Thicket ({rival['load'] + rival['unite']:.1f} s; ours {ours.cpu_s:.2f} s)",
        size=size,
        at_10x="ours linear; Thicket's uniting grows faster",
    )
    # Their objects carry no unit; those of GCC's runs are nanoseconds.
    some = [str(file) for file in files if "GCC" in str(file)][:5]
    same = run_rival(folder, OBJECTS, json.dumps(some))
    results.line(
        "objects of Hatchet and Thicket read as the files are",
        f"{same['graphframe']:.0f} and {same['thicket']:.0f} call sites differ",
        size=f"{same['values']:.0f} values of {len(some)} profiles",
        at_10x="the same",
    )
    results.against(
        "of which uniting, CPU",
        ratio=rival["unite"] / uniting.cpu_s,
        target=500.0,
        rival=f"Thicket ({rival['unite']:.2f} s; ours {uniting.cpu_s * 1e3:.2f} ms)",
        size=size,
        at_10x="ours linear",
    )


def compare_query(results: Results, folder: Path) -> None:
    """Select paths to MPI calls, and make the smaller graph."""
    graphs = random_graph(QUERY_NODES)
    document = [{"name": "f.*"}, "*", {"name": "MPI_.*"}]
    query = parse_query("f* > * > MPI_*")
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "literal.json"
        file.write_bytes(to_literal(graphs))
        rival = run_rival(folder, QUERYING, str(file), json.dumps(document))
    ours = timed(lambda: select_nodes(graphs, query), repeat=10)
    both = timed(lambda: keep_selected(graphs, select_nodes(graphs, query)), repeat=10)
    chosen = int(select_nodes(graphs, query).sum())
    # Hatchet's "*" ends at the first call site that the next step fits: it does not find the one
    # MPI call below another MPI call, which is a path to an MPI call all the same.
    size = f"{QUERY_NODES:,} call sites, {chosen:,} selected (Hatchet: {rival['nodes']:,.0f})"
    results.against(
        "path query, CPU",
        ratio=rival["query"] / ours.cpu_s,
        target=100.0,
        rival=f"Hatchet ({rival['query']:.2f} s; ours {ours.cpu_s * 1e3:.2f} ms)",
        size=size,
        at_10x="ours linear",
    )
    results.against(
        "path query and squash, CPU",
        ratio=(rival["query"] + rival["squash"]) / both.cpu_s,
        target=100.0,
        rival=f"Hatchet ({rival['query'] + rival['squash']:.2f} s; ours {both.cpu_s * 1e3:.2f} ms)",
        size=size,
        at_10x="ours linear",
    )
    larger = random_graph(10 * QUERY_NODES)
    more = timed(lambda: select_nodes(larger, query), repeat=5)
    results.line(
        "path query of ours",
        f"{more.cpu_s * 1e3:.1f} ms",
        size="100,000 call sites",
        at_10x="linear",
    )


def main() -> int:
    """Compare with what is installed."""
    results = Results()
    folder = rivals_folder()
    if folder is None:
        print("  Hatchet and Thicket are not installed (MAREY_RIVALS): not compared", flush=True)
        return 0
    compare_uniting(results, folder)
    compare_query(results, folder)
    return results.missed


if __name__ == "__main__":
    main()
