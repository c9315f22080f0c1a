"""Write the shipped profiles that come from public operator tables.

    python benchmarks/make_shipped_imports.py [FOLDER]

FOLDER holds ``aceso/*.csv`` as published by eth-easl/sailor (MIT licence); by default the folder
that SLACKSWAP_PUBLIC_DATA names, or ``shared/data`` beside the checkout. The tables themselves are
not part of this repository: the profiles hold figures derived from them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from slackswap.profiles import import_profile

ROOT = Path(__file__).resolve().parent.parent
TABLES = {
    "gpt-neo-2.7b-a100": "A100-40_GPT-Neo-2.7_mbs4_tp1.csv",
    "opt-350m-a100": "A100-40_OPT-350_mbs4_tp1.csv",
}
ORIGIN = {
    "origin": "https://github.com/eth-easl/sailor, outputs of the Aceso profiler",
    "license": "MIT",
}


def main(folder: Path) -> None:
    """Import each table and save its profile."""
    for name, table in TABLES.items():
        profile = import_profile(folder / "aceso" / table, format="aceso", name=name)
        profile = replace(profile, provenance={**profile.provenance, **ORIGIN})
        path = ROOT / "profiles" / "data" / f"{name}.json.gz"
        profile.save(path)
        print(f"{path.relative_to(ROOT)}: {len(profile.forward)} ops, {path.stat().st_size} bytes")


if __name__ == "__main__":
    default = os.environ.get("SLACKSWAP_PUBLIC_DATA", ROOT.parent / "shared" / "data")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else default))
