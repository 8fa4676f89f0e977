"""Slurm's tools as small scripts that say what was recorded, and remember what they were asked."""

from __future__ import annotations

import stat
from pathlib import Path


def tool(folder: Path, name: str, script: str) -> None:
    """A tool that does this."""
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/asked"\n{script}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def asked(folder: Path) -> list[str]:
    """The calls of all tools so far."""
    return (folder / "asked").read_text().split("\n")[:-1]


def recorded_tools(folder: Path, data_dir: Path) -> None:
    """The tools of a recorded Slurm 22.05."""
    recorded = data_dir / "slurm/22.05"
    tool(
        folder,
        "scontrol",
        f'[ "$1" = --version ] && echo "slurm-wlm 22.05.8" && exit\n'
        f'cat "{recorded}/scontrol_show_partition.txt"',
    )
    tool(folder, "sinfo", f'cat "{recorded}/sinfo.json"')
    tool(folder, "squeue", f'cat "{recorded}/squeue.json"')
