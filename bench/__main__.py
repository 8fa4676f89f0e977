"""``python -m bench [NAME …]``: run the named benches, or all of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

NOT_BENCHES = {
    "__main__", "chromium", "hard_effects", "hard_oracle", "report", "workload_store",
}  # fmt: skip


def names() -> list[str]:
    """Every bench there is: one module each."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(m.name for m in modules if m.name not in NOT_BENCHES)


def main(argv: list[str]) -> int:
    """Run what was asked for; the exit status is the number of benches that missed a target."""
    known = names()
    wanted = argv or known
    missed = 0
    for name in wanted:
        if name not in known:
            print(f"Unknown bench '{name}'; there are: {', '.join(known)}.", file=sys.stderr)
            return 2
        print(f"\n== {name} ==", flush=True)
        missed += 1 if importlib.import_module(f"bench.{name}").main() else 0
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
