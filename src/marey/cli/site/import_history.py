"""``marey import``: history from files into a store."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from marey.app.collect.sample_store import refuse_samples_elsewhere
from marey.app.history.imports import (
    ImportDocument,
    ImportRequest,
    ImportSummary,
    ProgressCall,
    check_import,
    import_run,
    parse_keeping,
    write_import,
)
from marey.app.history.server_import import send_import
from marey.cli.output import Output
from marey.model.errors import Conflict, InvalidInput
from marey.model.names import DEFAULT_CLUSTER
from marey.model.system.private_files import protect_new_files
from marey.model.times import HOUR_MS, SECOND_MS, format_time, parse_duration
from marey.sources.foreign.foreign_samples import read_foreign_samples
from marey.sources.run_folder import find_folder, open_run_folder
from marey.sources.samples_file import open_samples
from marey.sources.slurm.commands import CommandLine
from marey.store.embedded.embedded_store import EmbeddedStore, Retention, open_store
from marey.store.holder import find_holder

DEFAULT_SINCE = "7d"
DESCRIPTION = """\
Import history from files into a store: samples of GPUs and the workloads that used them.

Both files are checked completely before anything is written; a bad row is reported with its line
number and stops the import. Importing the same files again changes nothing, except that raw
samples reduced in the meantime are restored. An import never thins existing data.

samples    CSV or Parquet, one row per time, host and gpu (index), then one column per metric,
           by its name in Marey (util, power, …) or in an exporter (DCGM_FI_DEV_GPU_UTIL, …);
           or a log of `nvidia-smi --query-gpu=timestamp,index,… --format=csv`, or the system
           metrics of a W&B run (CSV of history(stream="system"), or wandb-events.jsonl)
workloads  CSV or a JSON array: id, name, user, project, partition, state, submit, start, end,
           gpus (host:index separated by spaces); required: id, start, gpus;
           or the output of `sacct --json` or `sacct -P`
sacct      finished GPU jobs, read from Slurm accounting now
FOLDER     the output of `marey sim --out FOLDER`
"""
EXAMPLES = """\
  marey import --samples samples.csv --workloads jobs.csv --store site.duckdb
  marey import --samples samples.parquet --store site.duckdb
  marey import run/ --store site.duckdb
  marey import --samples smi.csv --host node7 --store site.duckdb
  marey import --samples wandb-events.jsonl --as bert-large --store site.duckdb
  marey import --workloads jobs.psv --store site.duckdb
  marey import --sacct --since 7d --store site.duckdb
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", nargs="?", type=Path, help="a folder written by `marey sim`")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="samples, CSV or Parquet")
    parser.add_argument(
        "--host", metavar="NAME", help="host of an nvidia-smi or W&B log (default: the file name)"
    )
    parser.add_argument("--workloads", type=Path, metavar="FILE", help="workloads, CSV or JSON")
    parser.add_argument(
        "--as", dest="run_id", metavar="ID",
        help="the samples are those of one run: make it a workload, which can be diagnosed",
    )  # fmt: skip
    parser.add_argument(
        "--sacct", action="store_true", help="finished GPU jobs from Slurm accounting"
    )
    parser.add_argument(
        "--since", metavar="DURATION", help="how far back --sacct reads (default: 7d)"
    )
    parser.add_argument(
        "--store", type=Path, default=Path("marey.duckdb"), metavar="FILE",
        help="the store to write to; created if missing (default: marey.duckdb)",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", default=DEFAULT_CLUSTER, help="the cluster's name (default: default)"
    )
    parser.add_argument(
        "--keep",
        default="forever",
        metavar="DURATION",
        help="how long the raw samples are kept, such as 90d; 'retention' for as long as "
        "[store] retention says (default: forever)",
    )
    parser.add_argument(
        "--skip-bad-rows", action="store_true", help="skip bad rows instead of stopping"
    )


def run(args: argparse.Namespace, out: Output) -> None:
    """Check, write, and say what was brought in."""
    protect_new_files()
    if args.folder is not None and (args.samples or args.workloads or args.sacct):
        raise InvalidInput("Name a folder, or --samples and --workloads; not both.")
    if args.sacct and args.workloads:
        raise InvalidInput("--sacct and --workloads both bring workloads; name one of them.")
    if args.since is not None and not args.sacct:
        raise InvalidInput("--since belongs to --sacct; files are imported whole.")
    if args.run_id is not None and (args.workloads or args.sacct or args.samples is None):
        raise InvalidInput("--as names the one run that --samples FILE is of; nothing else.")
    with ExitStack() as stack:
        args.workloads = stack.enter_context(_read_accounting(args))
        args.samples = stack.enter_context(_read_foreign(args))
        if args.run_id is not None:
            args.workloads = stack.enter_context(_make_run(args.samples, args.run_id))
        brought = msgspec.to_builtins(_import(args, out))
        document = {"store": str(args.store), **brought}
    if args.samples is not None and not document["workloads"]:
        document["warnings"].append(
            "no workload was brought in; if these are the samples of one run, --as ID makes it one "
            "that can be diagnosed"
        )
    for warning in document["warnings"]:
        out.print_note(f"marey import: {warning}")
    out.answer(document, _print_report(document))


@contextmanager
def _read_accounting(args: argparse.Namespace) -> Iterator[Path | None]:
    """Yield what sacct says as a file that is gone afterwards; without --sacct the file named."""
    if not args.sacct:
        yield args.workloads
        return
    since_ms = parse_duration(args.since or DEFAULT_SINCE)
    now_ms = time.time_ns() // 1_000_000
    with tempfile.TemporaryDirectory(prefix="marey-") as folder:
        path = Path(folder) / "sacct.json"
        path.write_bytes(CommandLine().history_document(now_ms - since_ms, now_ms))
        yield path


@contextmanager
def _read_foreign(args: argparse.Namespace) -> Iterator[Path | None]:
    """Yield what another program logged, as a samples file that is gone afterwards."""
    path: Path | None = args.samples
    table = read_foreign_samples(path, args.host or path.stem) if path is not None else None
    if table is None or path is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="marey-") as folder:
        # Under its own name, by which it is called in what is said of it.
        made = Path(folder) / path.name
        pq.write_table(table, made)
        yield made


@contextmanager
def _make_run(path: Path, run_id: str) -> Iterator[Path]:
    """Yield a workloads file of one run that held every GPU of a samples file all the time.

    How it ended, samples do not tell.
    """
    samples = open_samples(path)
    for _ in samples.batches():
        pass
    if samples.first_ms is None or samples.last_ms is None:
        raise InvalidInput(f"{path.name} has a header but no rows.")
    run = {
        "id": run_id,
        "name": run_id,
        "state": "completed",
        "start": format_time(samples.first_ms),
        "end": format_time(samples.last_ms + SECOND_MS),
        "gpus": list(samples.gpus),
        "attributes": {"from": "samples alone: how it ended is not known"},
    }
    with tempfile.TemporaryDirectory(prefix="marey-") as folder:
        made = Path(folder) / "run.json"
        made.write_bytes(msgspec.json.encode([run]))
        yield made


def _import(args: argparse.Namespace, out: Output) -> ImportDocument:
    folder = args.folder or find_folder(args.samples) or find_folder(args.workloads)
    server = find_holder(args.store)
    if folder is not None:
        if server is not None:
            raise Conflict(
                f"The server at {server.url} holds '{args.store}'; stop it to import a whole run."
            )
        run_folder = open_run_folder(folder, args.cluster)
        keep = parse_keeping(args.keep)
        return _write(args, out, lambda store, tell: import_run(run_folder, store, tell, keep))
    request = ImportRequest(
        args.samples, args.workloads, args.cluster, args.skip_bad_rows, parse_keeping(args.keep)
    )
    if server is not None:
        with out.progress("importing", 1.0) as bar:
            return send_import(server, request, bar.update)
    with out.progress("checking", 1.0) as bar:
        checked = check_import(request, bar.update)
    return _write(args, out, lambda store, tell: write_import(checked, store, tell))


def _write(
    args: argparse.Namespace,
    out: Output,
    work: Callable[[EmbeddedStore, ProgressCall], ImportSummary],
) -> ImportDocument:
    # An import adds history: what is old is reduced by the server, or not at all.
    forever = Retention(raw_days=None, sketch_days=None)
    with (
        open_store(args.store, retention=forever) as store,
        out.progress("importing", 1.0) as bar,
    ):
        refuse_samples_elsewhere(store)
        summary = work(store, bar.update)
        if summary.to_ms is not None:
            # Its hours are laid out for reading.
            store.maintain(summary.to_ms + HOUR_MS)
    return summary.document()


def _print_report(document: dict[str, Any]) -> str:
    span = f", {document['from']} to {document['to']}" if document["from"] else ""
    left_out = f"; {document['bad_rows']} bad rows left out" if document["bad_rows"] else ""
    kept = f"\n{document['kept']}" if document["samples"] else ""
    return (
        f"{document['store']}: {_count(document['workloads'], 'workload')}, "
        f"{document['samples']} rows of samples of {_count(document['gpus'], 'GPU')} on "
        f"{_count(document['hosts'], 'host')}{span}{left_out}{kept}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
