"""Kineto JSON to the event table: speed and memory against HolisticTraceAnalysis and orjson + loop.

Every measurement is a process of its own, so that its peak memory is its own. The trace is made up
from a seed, in the proportions and the layout of a real training rank: nested operators with
shapes, Python frames, runtime calls, kernels with launch flows, collectives and steps.

    MAREY_BENCH_MB=1000   size of the trace (default 1000)
    MAREY_BENCH_HTA_MB=1000  size that HolisticTraceAnalysis is given (default: the same trace)

Ratios are of CPU time, all on one thread, so that other work on the machine does not move them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.report import Results

HTA = "HolisticTraceAnalysis==0.5.0"
RUNS = 3
_HEADER = """
{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "Made-up GPU", "totalGlobalMem": 85018279936, "numSms": 132
    }
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8, "pg_count": 1, "pg_config": [
    {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": [0, 1, 2, 3, 4, 5, 6, 7]}]},
  "traceEvents": [
"""
_TRAILER = """
  ],
  "traceName": "made-up.json",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1767189312000000000
}
"""
_KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int, "
    "at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> "
    ">, at::detail::Array<char*, 2>)",
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t"
    "<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)>>>(int)",
    "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>()",
)
_OPS = ("aten::linear", "aten::mul", "aten::sum", "aten::scaled_dot_product_attention")
_INNER = ("aten::addmm", "aten::mul_", "aten::sum_out", "aten::_flash_attention_forward")


def events_of_trace(seed: int) -> Iterator[str]:
    """The JSON text of one event after the other, without end."""
    draw = random.Random(seed)
    now, number, step = 4458676000000.0, 1, 0
    while True:
        begin = now
        parts: list[str] = []
        for op in range(400):
            which = draw.randrange(4)
            now += draw.uniform(5, 30)
            number += 3
            parts.extend(_operator(draw, now, number, which))
            if op % 40 == 39:
                number += 2
                parts.extend(_collective(draw, now + 3, number))
        yield (
            f'  {{\n    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", '
            f'"pid": 4037, "tid": 4037,\n    "ts": {begin:.3f}, "dur": {now - begin + 40:.3f},\n'
            f'    "args": {{\n      "External id": {number + 1},"Ev Idx": 0\n    }}\n  }}'
        )
        yield from parts
        number, step, now = number + 2, step + 1, now + 60


def _operator(draw: random.Random, now: float, number: int, which: int) -> Iterator[str]:
    rows, columns = 1 << draw.randrange(5, 12), 1 << draw.randrange(5, 13)
    yield (
        f'  {{\n    "ph": "X", "cat": "python_function", "name": "model/layers.py({number % 400}): '
        f'forward", "pid": 4037, "tid": 4037,\n    "ts": {now - 2:.3f}, "dur": {22.5:.3f},\n'
        f'    "args": {{\n      "Python parent id": {number % 90}, "Python id": {number}, '
        f'"Ev Idx": {number}\n    }}\n  }}'
    )
    for depth, name in enumerate((_OPS[which], _INNER[which])):
        yield (
            f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 4037, "tid": 4037,\n'
            f'    "ts": {now + depth:.3f}, "dur": {18.25 - 2 * depth:.3f},\n    "args": {{\n'
            f'      "External id": {number + depth},"Record function id": {number}, '
            f'"Concrete Inputs": ["", "", "", "1"], "Input type": ["c10::BFloat16", '
            f'"c10::BFloat16", "c10::BFloat16", "Scalar"], '
            f'"Input Strides": [[{columns}, 1], [1, {rows}], [1], []], "Input Dims": '
            f"[[{rows}, {columns}], [{columns}, {rows}], [{rows}], []], "
            f'"Sequence number": {number}, "Fwd thread id": 0, '
            f'"Ev Idx": {number + depth}\n    }}\n  }}'
        )
    yield from _launched(now + 4, number, number + 1, _KERNELS[which], 7, "")


def _launched(
    now: float, correlation: int, external: int, kernel: str, stream: int, more: str
) -> Iterator[str]:
    late = now + 9.25
    yield (
        f'  {{\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4037, '
        f'"tid": 4037,\n    "ts": {now:.3f}, "dur": 4.101,\n    "args": {{\n      "External id": '
        f'{external},      "cbid": 211, "correlation": {correlation}\n    }}\n  }}'
    )
    yield (
        f'  {{\n    "ph": "s", "id": {correlation}, "pid": 4037, "tid": 4037, "ts": {now:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g"\n  }}'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {stream},\n'
        f'    "ts": {late:.3f}, "dur": {6.049:.3f},\n    "args": {{\n'
        f'      "External id": {external},'
        f'      "queued": 0, "device": 0, "context": 1,      "stream": {stream}, "correlation": '
        f'{correlation},{more}      "registers per thread": 40,      "shared memory": 400,      '
        f'"blocks per SM": 4.740741,      "warps per SM": 75.851852,      '
        f'"grid": [512, 1, 1],      '
        f'"block": [512, 1, 1],      "est. achieved occupancy %": 75\n    }}\n  }}'
    )
    yield (
        f'  {{\n    "ph": "f", "id": {correlation}, "pid": 0, "tid": {stream}, "ts": {late:.3f},\n'
        f'    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
    )


def _collective(draw: random.Random, now: float, number: int) -> Iterator[str]:
    count = draw.randrange(1, 1 << 24)
    args = (
        f' "Collective name": "allreduce", "In msg nelems": {count}, "Out msg nelems": {count}, '
        f'"Group size": 8, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", '
        f'"Process Group Name": "0", "Process Group Description": "default_pg", '
        f'"Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]", "Seq": {number},'
    )
    yield (
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 4037, '
        f'"tid": 4037,\n    "ts": {now:.3f}, "dur": 12.5,\n    "args": {{\n      "External id": '
        f'{number},{args} "Ev Idx": {number}\n    }}\n  }}'
    )
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    yield from _launched(now + 1, number, number, kernel, 20, args)


def write_trace(path: Path, size_mb: float, seed: int = 7) -> None:
    """A trace of about this size."""
    wanted, written = int(size_mb * 1e6), 0
    with path.open("w", buffering=1 << 20) as file:
        file.write(_HEADER)
        events = events_of_trace(seed)
        text = next(events)
        while written < wanted:
            file.write(text)
            written += len(text) + 2
            text = next(events)
            file.write(",\n" if written < wanted else "")
        file.write(_TRAILER)


# Each of these runs in a fresh process: argument 1 is the trace, the last line printed is JSON.
_REPORT = """
import json, resource, sys, time
def report(wall_s, cpu_s, rows):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "rows": rows, "peak_mb": peak}))
"""
# pyarrow imports pandas wherever something else brought it, as tools of the tests do: 55 MB and its
# own time. Marey does without, so neither side of this pair has it.
_NO_PANDAS = """
class WithoutPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, WithoutPandas())
"""
_MAREY = (
    _REPORT
    + _NO_PANDAS
    + """
import tempfile
from pathlib import Path
from marey.trace.run.conversion import convert_file
from marey.trace.readers.result import ReadOptions
with tempfile.TemporaryDirectory() as cache:
    start, busy = time.perf_counter(), time.process_time()
    done = convert_file(Path(sys.argv[1]), Path(cache), ReadOptions(native=sys.argv[2] == "native"))
    rows = sum(rank.events for rank in done.ranks)
    report(time.perf_counter() - start, time.process_time() - busy, rows)
"""
)
_ORJSON = (
    _REPORT
    + _NO_PANDAS
    + """
import orjson
start, busy = time.perf_counter(), time.process_time()
columns = {k: [] for k in ("cat", "name", "pid", "tid", "ts", "dur", "correlation", "external",
           "stream", "device", "group", "sequence", "elements", "dtype")}
with open(sys.argv[1], "rb") as file:
    events = orjson.loads(file.read())["traceEvents"]
for event in events:
    if event.get("ph") != "X":
        continue
    args = event.get("args", {})
    columns["cat"].append(event.get("cat"))
    columns["name"].append(event.get("name"))
    columns["pid"].append(event.get("pid"))
    columns["tid"].append(event.get("tid"))
    columns["ts"].append(event.get("ts"))
    columns["dur"].append(event.get("dur"))
    columns["correlation"].append(args.get("correlation", -1))
    columns["external"].append(args.get("External id", -1))
    columns["stream"].append(args.get("stream", -1))
    columns["device"].append(args.get("device", -1))
    columns["group"].append(args.get("Process Group Name", ""))
    columns["sequence"].append(args.get("Seq", -1))
    columns["elements"].append(args.get("In msg nelems", -1))
    columns["dtype"].append(args.get("dtype", ""))
import pyarrow as pa
table = pa.table({name: pa.array(values, from_pandas=False) for name, values in columns.items()})
report(time.perf_counter() - start, time.process_time() - busy, len(table))
"""
)
_HTA = (
    _REPORT
    + """
from hta.common.trace import Trace
start, busy = time.perf_counter(), time.process_time()
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
trace.parse_traces(use_multiprocessing=False)
trace.align_and_filter_trace(include_last_profiler_step=True)
report(time.perf_counter() - start, time.process_time() - busy, len(trace.get_trace(0)))
"""
)


def measured(python: str, code: str, *arguments: str) -> dict[str, float]:
    """Run in a fresh process; its time, its rows and its peak memory."""
    done = subprocess.run(
        [python, "-c", code, *arguments], capture_output=True, text=True, timeout=3600, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def best(python: str, code: str, *arguments: str, runs: int = RUNS) -> dict[str, float]:
    """The cheapest of several runs; the peak is the largest of them."""
    results = [measured(python, code, *arguments) for _ in range(runs)]
    cheapest = min(results, key=lambda r: r["cpu_s"])
    return {**cheapest, "peak_mb": max(r["peak_mb"] for r in results)}


def hta_python(folder: Path) -> str | None:
    """A throwaway environment with the rival in it; None where it cannot be installed."""
    given = os.environ.get("MAREY_BENCH_HTA_PYTHON")
    if given:
        return given
    python = folder / "rival" / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder / "rival")], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", HTA], check=True)
    except (subprocess.CalledProcessError, OSError):
        return None
    return str(python)


def main() -> int:
    """Measure Marey's two parsers and their rivals on the same trace in one run."""
    results = Results()
    size_mb = float(os.environ.get("MAREY_BENCH_MB", "1000"))
    hta_mb = min(size_mb, float(os.environ.get("MAREY_BENCH_HTA_MB", size_mb)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, small = folder / "large.json", folder / "small.json"
        write_trace(large, size_mb)
        if hta_mb < size_mb:
            write_trace(small, hta_mb)
        else:
            small = large
        loop = measured(sys.executable, _ORJSON, str(large))
        rival = hta_python(folder)
        theirs = measured(rival, _HTA, str(small)) if rival else None
        if theirs is None:
            print("  HolisticTraceAnalysis could not be installed: its ratio is not measured")
        for parser in ("native", "msgspec"):
            mine = best(
                sys.executable, _MAREY, str(large), parser, runs=RUNS if parser == "native" else 1
            )
            _memory(results, parser, mine, large)
            if parser == "native":
                _against_loop(results, mine, loop, large)
            if theirs:
                _against_hta(results, parser, (mine, large), (theirs, small))
        _growth(results, folder, size_mb)
    return results.missed


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


def _size(mine: dict[str, float], path: Path) -> str:
    return (
        f"{_megabytes(path):.0f} MB of JSON, {mine['rows']:.0f} events, "
        f"{mine['cpu_s']:.2f} s CPU, {mine['wall_s']:.2f} s wall, {mine['peak_mb']:.0f} MiB"
    )


def _memory(results: Results, parser: str, mine: dict[str, float], path: Path) -> None:
    results.against(
        f"{parser}: peak memory",
        ratio=mine["peak_mb"] * 1.048576 / _megabytes(path),
        target=0.35 if parser == "native" else 0.6,
        rival="the size of the JSON",
        size=_size(mine, path),
        at_10x="the narrow columns of the events grow with them; blocks and code do not",
        higher_is_better=False,
    )


def _against_loop(
    results: Results, mine: dict[str, float], loop: dict[str, float], path: Path
) -> None:
    results.against(
        "native: speed",
        ratio=loop["cpu_s"] / mine["cpu_s"],
        target=10,
        rival=f"orjson + loop ({loop['cpu_s']:.1f} s CPU, {loop['peak_mb'] / 1024:.1f} GiB)",
        size=_size(mine, path),
        at_10x="both linear in bytes; the loop needs ten times the memory",
    )


def _against_hta(
    results: Results,
    parser: str,
    mine: tuple[dict[str, float], Path],
    theirs: tuple[dict[str, float], Path],
) -> None:
    """Per byte: the rival may be given a part of the same trace; it needs a minute per GB."""
    per_mb = theirs[0]["cpu_s"] / _megabytes(theirs[1])
    results.against(
        f"{parser}: speed per byte",
        ratio=per_mb / (mine[0]["cpu_s"] / _megabytes(mine[1])),
        target=30 if parser == "native" else 3,
        rival=f"HolisticTraceAnalysis 0.5.0 ({_size(*theirs)})",
        size=_size(*mine),
        at_10x="both linear in events; the rival needs ten times its memory",
    )


def _growth(results: Results, folder: Path, size_mb: float) -> None:
    """Cost per event at three sizes: it stays the same."""
    costs = []
    for part in (8, 4, 2):
        path = folder / f"part{part}.json"
        write_trace(path, size_mb / part)
        mine = best(sys.executable, _MAREY, str(path), "native", runs=2)
        costs.append((mine["rows"], mine["cpu_s"] / mine["rows"] * 1e6))
    results.against(
        "native: cost per event, largest size over smallest",
        ratio=costs[-1][1] / costs[0][1],
        target=1.25,
        rival="linear growth",
        size=", ".join(f"{rows:.0f} events at {cost:.2f} µs" for rows, cost in costs),
        at_10x="the same per event",
        higher_is_better=False,
    )


if __name__ == "__main__":
    sys.exit(main())
