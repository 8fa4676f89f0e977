"""Outputs of GPU tools that cannot be imported, and which export of the same tool can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from marey.model.errors import InvalidInput

ASK_SMI = "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,… --format=csv -l 10"
ASK_DMON = "nvidia-smi dmon -o DT"
ASK_AMD = "amd-smi metric --usage --power --clock --temperature --mem-usage --csv -w 10"
# What there is to ask for: sacct -P -o with these tells all that is kept.
SACCT_COLUMNS = (
    "JobID,JobName,User,Account,Partition,QOS,State,Reason,ExitCode,Submit,Eligible,Start,End,"
    "TimelimitRaw,NNodes,NodeList,ReqTRES,AllocTRES,Comment,WCKey,Priority"
)
ASK_SACCT = f"sacct -P -o {SACCT_COLUMNS}, or sacct --json"
HEAD_BYTES = 8192


@dataclass(frozen=True, slots=True)
class UnusableLog:
    """An output that is recognised: how it looks, what it is, and what to ask for instead."""

    pattern: re.Pattern[str]
    what: str
    ask: str


def _describe(pattern: str, what: str, ask: str) -> UnusableLog:
    return UnusableLog(re.compile(pattern, re.MULTILINE), what, ask)


UNUSABLE = (
    _describe(r"<nvidia_smi_log", "what nvidia-smi -q -x prints, one moment at a time", ASK_SMI),
    _describe(r"^=+NVSMI LOG=+", "what nvidia-smi -q prints for people", ASK_SMI),
    _describe(r"^\| NVIDIA-SMI ", "the table that nvidia-smi prints for people", ASK_SMI),
    _describe(
        r"^#.*\bgpu\s+pid\b",
        "a log of nvidia-smi pmon, which tells of processes and not of GPUs",
        ASK_DMON,
    ),
    _describe(
        r"^[^\n]*\bpid\b[^\n]*\bused_(?:gpu_)?memory\b",
        "a log of processes, which tells nothing of a GPU's work",
        ASK_SMI,
    ),
    _describe(
        r"\A[^\n]*\b\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d+, ",
        "a log of nvidia-smi without its header",
        ASK_SMI,
    ),
    _describe(
        r"^[Dd]evice,.*(?:GPU use \(%\)|Temperature \(Sensor|Power \(W\)|VRAM Total)",
        "a CSV of rocm-smi, which writes no times",
        ASK_AMD,
    ),
    _describe(r'"card\d+"\s*:', "JSON of rocm-smi, which writes no times", ASK_AMD),
    _describe(r"ROCm System Management Interface", "what rocm-smi prints for people", ASK_AMD),
    _describe(r'"(?:gfx_activity|socket_power)"\s*:', "JSON of amd-smi", ASK_AMD),
    _describe(
        r"^GPU\s+(?:XCP\s+)?POWER\b|^TIMESTAMP\s+GPU\b", "what amd-smi prints for people", ASK_AMD
    ),
    _describe(
        r'"device_name"\s*:[^}]*"gpu_util"\s*:', "a snapshot of nvtop, which has no time",
        f"{ASK_SMI}, or {ASK_AMD}",
    ),
    _describe(
        r"^#\s*Entity\b|^ID\s+[A-Z]{3,}", "a log of dcgmi dmon, which writes no times", ASK_DMON
    ),
    _describe(
        r"^Timestamp, DeviceId, ",
        "a dump of Intel's xpu-smi, whose times have no day",
        "a CSV with time, host, gpu and a column per metric (util, power, temp, mem_used, …)",
    ),
    _describe(
        r"^\| npu-smi |^NpuID\(Idx\)", "what Ascend's npu-smi prints, without days",
        'marey serve with [[source]] kind = "dcgm" and the npu-exporter, or a CSV with time, host, '
        "gpu and a column per metric",
    ),
    _describe(r'^"?timestamp"?,.*\bresource:\d+:', "a log of nvitop's collector", ASK_SMI),
    _describe(
        r'\A"?Time"?,.*(?:\bgpu=|GPU \d)',
        "a chart exported from Grafana, a column per GPU",
        'marey serve with [[source]] kind = "prometheus" and history = "7d", which asks itself',
    ),
    _describe(
        r"^# (?:HELP|TYPE) \w+|\A\w+\{[^}\n]*\} ",
        "one answer of an exporter: a single moment",
        'marey serve with [[source]] kind = "dcgm", which collects such answers',
    ),
    _describe(
        r'"resultType"\s*:',
        "an answer of Prometheus",
        'marey serve with [[source]] kind = "prometheus" and history = "7d", which asks itself',
    ),
)  # fmt: skip


UNUSABLE_JOBS = (
    _describe(r"\A\s*JOBID\s+PARTITION\b", "what squeue prints, which forgets jobs", ASK_SACCT),
    _describe(r"\A\s*JobId=\d+ ", "what scontrol prints of jobs", ASK_SACCT),
    _describe(r"\A\s*JobID\s+\S", "the table that sacct prints for people", ASK_SACCT),
    _describe(r'\A"?JobID"?[,;\t]', "sacct's text with other marks between columns", ASK_SACCT),
)


def refuse_known_output(path: Path, outputs: Sequence[UnusableLog] = UNUSABLE) -> None:
    """Say what to ask for where a file is an output that is known and cannot be imported."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES).decode("utf-8", "replace").lstrip("\ufeff")
    for known in outputs:
        if known.pattern.search(head):
            raise InvalidInput(f"{path.name} is {known.what}; ask for: {known.ask}.")
