"""Reading exporters' text: against prometheus_client's parser, on the same text, in one run."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from bench.report import Results, timed
from marey.sources.exposition import ExpositionReader, list_gpu_targets

GPUS = 8
TEXTS = 50


def exporter_text(host: str, scrape: int = 0, gpus: int = GPUS) -> bytes:
    """What a dcgm-exporter with 25 counters on says, written after its documentation."""
    names = [name for name in list_gpu_targets() if name.startswith("DCGM_")][:25]
    lines = []
    for name in names:
        lines += [f"# HELP {name} Some help of this metric.", f"# TYPE {name} gauge"]
        for gpu in range(gpus):
            lines.append(
                f'{name}{{gpu="{gpu}",UUID="GPU-{host}-0da5-6d26-a36a-e7af1ce2{gpu:04d}",'
                f'pci_bus_id="00000000:0{gpu}:00.0",device="nvidia{gpu}",'
                f'modelName="NVIDIA H100 80GB HBM3",Hostname="{host}",'
                f'DCGM_FI_DRIVER_VERSION="550.54.15"}} {(gpu * 7 + scrape) % 90 + 0.25:.6f}'
            )
    return ("\n".join(lines) + "\n").encode()


def main() -> int:
    """Cold (labels never seen) and warm (every later scrape) against the rival."""
    results = Results()
    texts = [exporter_text(f"node{at:04d}") for at in range(TEXTS)]
    size = f"{TEXTS} exporters × {GPUS} GPUs × 25 metrics, {sum(map(len, texts)) / 1e6:.1f} MB"
    readers = [ExpositionReader(f"node{at:04d}") for at in range(TEXTS)]

    def cold() -> None:
        for at, text in enumerate(texts):
            ExpositionReader(f"node{at:04d}").read(text)

    def warm() -> None:
        for reader, text in zip(readers, texts, strict=True):
            reader.read(text)

    ours_cold, ours_warm = timed(cold), timed(warm)
    at_10x = f"10 × {ours_warm.cpu_s * 1000:.0f} ms CPU: linear in the lines"

    def theirs() -> None:
        for text in texts:
            for family in text_string_to_metric_families(text.decode()):
                for sample in family.samples:
                    _ = sample.value

    rivals = timed(theirs, repeat=2, warm=False)
    for what, ours in (("first scrape", ours_cold), ("every later scrape", ours_warm)):
        results.against(
            f"reading exposition, {what} ({ours.cpu_s / TEXTS * 1e6:.0f} µs CPU an exporter)",
            ratio=rivals.cpu_s / ours.cpu_s,
            target=10,
            rival="faster than prometheus_client's parser (CPU)",
            size=size,
            at_10x=at_10x,
        )
    return results.missed
