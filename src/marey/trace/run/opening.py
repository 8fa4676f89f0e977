"""Files → one run: convert each in parallel, settle which file is which rank, join the symbols."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from marey.model.errors import InvalidInput, shown
from marey.model.system.private_files import make_private_folder
from marey.model.training.symbols import Symbols
from marey.trace.readers.result import ReadOptions
from marey.trace.readers.trace_info import Note, RankInfo
from marey.trace.run.cache import default_cache
from marey.trace.run.conversion import ConvertedFile, ConvertedRank, convert_file, find_converted
from marey.trace.run.files import (
    PLACEMENTS_SUFFIX,
    do_names_repeat,
    find_files,
    own_parts,
    rank_in_name,
)
from marey.trace.run.rank_tables import RankTables, from_cache, join_tables, load_stored_symbols

# The first is believed before the second where both claim a rank.
FRAMEWORKS = ("pytorch", "jax", "ascend", "nsys", "optable", "chrome", "chakra", "strategy")
# msprof writes one file per iteration of a device: together they are its recording.
IN_PARTS = frozenset({"ascend"})
# Beside msprof_*.json it writes the streams and the communications of a device once more, apart.
EXCERPTS = ("task_time_", "hccl_")
# Starting processes costs about as much as reading this many compressed bytes.
WORTH_PROCESSES_BYTES = 8 << 20
Progress = Callable[[float], None]


@dataclass(frozen=True)
class OpenedRun:
    """Everything a run is made of."""

    tables: dict[int, RankTables]
    infos: dict[int, RankInfo]
    symbols: Symbols
    notes: list[Note]


@dataclass(frozen=True)
class OpenOptions:
    """Where converted tables are kept, who converts, and how."""

    cache: Path | None = None
    executor: Executor | None = None
    progress: Progress | None = None
    native: bool | None = None


def open_files(paths: str | Path | Iterable[str | Path], options: OpenOptions) -> OpenedRun:
    """Convert what is new, and give every rank its tables; an error if there is no event at all."""
    files = [f for f in find_files(paths) if not f.name.endswith(PLACEMENTS_SUFFIX)]
    results = _convert_all(files, options)
    notes = [Note(Path(r.path).name, text) for r in results for text in r.notes]
    chosen, more_notes = assign_ranks(results)
    if not chosen:
        reasons = "; ".join(f"{shown(n.file)}: {n.text}" for n in notes[:5])
        raise InvalidInput(
            f"No event was found in {_check_asked(paths)}: {reasons or 'no file there'}."
        )
    return _join(chosen, notes + more_notes)


def _check_asked(paths: str | Path | Iterable[str | Path]) -> str:
    return shown(str(paths)) if isinstance(paths, str | Path) else "the files given"


def _join(chosen: dict[int, ConvertedRank], notes: list[Note]) -> OpenedRun:
    """Return one symbol table for all ranks; each keeps the map from its own codes."""
    symbols = Symbols()
    tables, infos = {}, {}
    for rank, stored in sorted(chosen.items()):
        parts = [
            from_cache(part, rank, symbols.add_all(load_stored_symbols(part)))
            for part in (stored, *stored.more)
        ]
        tables[rank] = parts[0] if len(parts) == 1 else join_tables(parts)
        infos[rank] = replace(stored.info, rank=rank)
    return OpenedRun(tables, infos, symbols, notes)


def assign_ranks(
    results: Sequence[ConvertedFile],
) -> tuple[dict[int, ConvertedRank], list[Note]]:
    """Return which table is which rank: as stated, else as the file is named, else by order."""
    results, notes = _without_twins(results)
    results, devices = _first_devices(results)
    chosen, more = _assign_processes(results)
    return _number_devices(chosen, devices), notes + more


def _first_devices(
    results: Sequence[ConvertedFile],
) -> tuple[list[ConvertedFile], dict[str, tuple[ConvertedRank, ...]]]:
    """Return each file with one table per process, and the devices of files that have several."""
    kept, devices = [], {}
    for result in results:
        if len(result.ranks) > 1 and all(r.info.device is not None for r in result.ranks):
            devices[result.ranks[0].folder] = result.ranks
            result = replace(result, ranks=result.ranks[:1])
        kept.append(result)
    return kept, devices


def _number_devices(
    chosen: dict[int, ConvertedRank], devices: Mapping[str, Sequence[ConvertedRank]]
) -> dict[int, ConvertedRank]:
    """Return a number for every device.

    In order, or beyond the ranks where processes have groups.
    """
    if not devices:
        return chosen
    grouped = any(stored.info.groups for stored in chosen.values())
    worlds = [stored.info.world_size or 0 for stored in chosen.values()]
    beyond = itertools.count(max(max(chosen), *(w - 1 for w in worlds)) + 1)
    numbered: dict[int, ConvertedRank] = {}
    for process, stored in sorted(chosen.items()):
        mine = devices.get(stored.folder, (stored,))
        busiest = max(range(len(mine)), key=lambda n: (mine[n].events, -n))
        for n, one in enumerate(mine):
            rank = (process if n == busiest else next(beyond)) if grouped else len(numbered)
            numbered[rank] = replace(one, info=replace(one.info, process=process))
    return numbered


def _assign_processes(
    results: Sequence[ConvertedFile],
) -> tuple[dict[int, ConvertedRank], list[Note]]:
    """Return which process is which: as stated, else as the file is named, else by order."""
    notes: list[Note] = []
    named: list[tuple[int, str, ConvertedRank]] = []
    unnamed: list[tuple[str, ConvertedRank]] = []
    parts = own_parts([Path(result.path) for result in results])
    repeat = do_names_repeat(parts)
    for result, own in zip(results, parts, strict=True):
        for stored in result.ranks:
            by_name = None if repeat else rank_in_name(own)
            rank = stored.info.rank if stored.info.rank >= 0 else by_name
            if rank is None:
                unnamed.append((result.path, stored))
            else:
                named.append((rank, result.path, stored))
    if not named:
        chosen, more = _number(unnamed)
        return chosen, notes + more
    chosen, more = _best_of_each(named)
    left_out = "has no rank, but other files do: it is left out"
    return chosen, notes + more + [Note(Path(path).name, left_out) for path, _ in unnamed]


def _without_twins(results: Sequence[ConvertedFile]) -> tuple[list[ConvertedFile], list[Note]]:
    """Keep the first of the two files that JAX writes: host.xplane.pb and host.trace.json.gz."""
    planes = {
        path.removesuffix(".xplane.pb")
        for path in (result.path for result in results if result.ranks)
        if path.endswith(".xplane.pb")
    }
    kept, notes = [], []
    for result in results:
        stem = result.path.removesuffix(".gz").removesuffix(".trace.json")
        if stem in planes and not result.path.endswith(".xplane.pb"):
            text = f"is the same profile as {shown(Path(stem).name)}.xplane.pb, which is used"
            notes.append(Note(Path(result.path).name, text))
        else:
            kept.append(result)
    return kept, notes


def _number(
    unnamed: Sequence[tuple[str, ConvertedRank]],
) -> tuple[dict[int, ConvertedRank], list[Note]]:
    """Number files that say nothing about ranks in order; one file alone is rank 0."""
    best = min((_order_by_trust(stored)[0] for _, stored in unnamed), default=0)
    used = [(path, stored) for path, stored in unnamed if _order_by_trust(stored)[0] == best]
    notes = [
        Note(Path(path).name, f"has no rank; taken as rank {rank} by its place among the files")
        for rank, (path, _) in enumerate(used)
        if len(used) > 1
    ]
    return {rank: stored for rank, (_, stored) in enumerate(used)}, notes


def _best_of_each(
    named: Sequence[tuple[int, str, ConvertedRank]],
) -> tuple[dict[int, ConvertedRank], list[Note]]:
    kept: dict[int, tuple[str, ConvertedRank]] = {}
    notes = []
    for rank, path, stored in sorted(
        named, key=lambda n: (n[0], _excerpt(n[1]), *_order_by_trust(n[2]))
    ):
        in_parts = stored.info.framework in IN_PARTS
        if rank in kept and in_parts and _excerpt(path) == _excerpt(kept[rank][0]):
            first = kept[rank][1]
            kept[rank] = (kept[rank][0], replace(first, more=(*first.more, stored)))
        elif rank in kept:
            other = shown(Path(kept[rank][0]).name)
            notes.append(Note(Path(path).name, f"is rank {rank} again; {other} is used instead"))
        else:
            kept[rank] = (path, stored)
    return {rank: stored for rank, (_, stored) in kept.items()}, notes


def _excerpt(path: str) -> int:
    """Return 0 for a whole recording, more for what msprof writes of it once again."""
    name = Path(path).name
    return next((n for n, start in enumerate(EXCERPTS, 1) if name.startswith(start)), 0)


def _order_by_trust(stored: ConvertedRank) -> tuple[int, int, int]:
    """Rank files, smaller is better: profiles before outlines, real device events, more events."""
    framework = stored.info.framework
    place = FRAMEWORKS.index(framework) if framework in FRAMEWORKS else len(FRAMEWORKS)
    return place, -int(stored.info.has_device), -stored.events


def _convert_all(files: Sequence[Path], options: OpenOptions) -> list[ConvertedFile]:
    """Return every file's tables, in the order of the files.

    Only what is not in the cache costs time.
    """
    cache = options.cache or default_cache()
    known = {path: found for path in files if (found := find_converted(path, cache))}
    new = [path for path in files if path not in known]
    if new:
        _make_usable(cache)
    made = dict(zip(new, _convert_new(new, cache, options), strict=True))
    return [known.get(path) or made[path] for path in files]


def _make_usable(cache: Path) -> None:
    """Make the folder for converted tables; where that cannot be, say so before any reading."""
    try:
        make_private_folder(cache)
    except OSError as error:
        raise InvalidInput(
            f"Converted traces cannot be kept in {shown(str(cache))}: {error.strerror}; "
            "name a folder that can be written."
        ) from error


def _convert_new(new: Sequence[Path], cache: Path, options: OpenOptions) -> list[ConvertedFile]:
    reading = ReadOptions(native=options.native)
    if options.executor is not None:
        return _through(
            options.executor, files=new, cache=cache, reading=reading, progress=options.progress
        )
    size = sum(path.stat().st_size for path in new)
    if len(new) > 1 and size > WORTH_PROCESSES_BYTES:
        context = multiprocessing.get_context("forkserver")
        workers = min(os.cpu_count() or 1, len(new))
        try:
            with ProcessPoolExecutor(workers, mp_context=context) as pool, _main_unseen():
                return _through(
                    pool, files=new, cache=cache, reading=reading, progress=options.progress
                )
        except BrokenExecutor:  # no processes to be had here
            pass
    return _one_by_one(new, cache, options)


@contextlib.contextmanager
def _main_unseen() -> Iterator[None]:
    """Keep worker processes, which need only this package, from running the user's script again."""
    main = sys.modules.get("__main__")
    hidden = {name: vars(main).get(name) for name in ("__file__", "__spec__")} if main else {}
    try:
        for name in hidden:
            setattr(main, name, None)
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


def _one_by_one(files: Sequence[Path], cache: Path, options: OpenOptions) -> list[ConvertedFile]:
    results = []
    for n, path in enumerate(files):
        part = _part(options.progress, n, len(files))
        results.append(convert_file(path, cache, ReadOptions(options.native, part)))
        if options.progress:
            options.progress((n + 1) / len(files))
    return results


def _part(progress: Progress | None, n: int, count: int) -> Progress | None:
    return None if progress is None else lambda fraction: progress((n + fraction) / count)


def _through(
    executor: Executor,
    *,
    files: Sequence[Path],
    cache: Path,
    reading: ReadOptions,
    progress: Progress | None,
) -> list[ConvertedFile]:
    futures = [executor.submit(convert_file, path, cache, reading) for path in files]
    for n, _ in enumerate(as_completed(futures) if progress else ()):
        if progress:
            progress((n + 1) / len(files))
    return [future.result() for future in futures]
