"""Remake the profiles of the library: ``make profiles``.

Traced ones come from full-size models on fake tensors, priced for an A100; they are the same bytes
whenever the versions of PyTorch and transformers are. Imported ones come from public measurements,
which are not part of this repository: `--folder` (by default what SLACKSWAP_PUBLIC_DATA names, or
``shared/data`` beside the checkout) holds ``aceso/`` of eth-easl/sailor and ``neusight/`` of
sitar-lab/NeuSight, both under the MIT licence. Analytic ones are built when they are asked for, so
that their identity is all there is to make. Measured ones run small models on this machine's CPU,
and where there is a CUDA device, BERT-Large, GPT-2 XL and a Llama-7B on it too.

    python benchmarks/make_profiles.py                    all that this machine can make
    python benchmarks/make_profiles.py gpt-small-cpu      some
    python benchmarks/make_profiles.py --only traced      analytic, traced, imported, cpu or cuda
    python benchmarks/make_profiles.py --check            compare, bit for bit; write nothing
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from slackswap.errors import SlackSwapError
from slackswap.profile import Profile
from slackswap.profiles import import_profile, library_entries
from slackswap.profiles.capture import capture
from slackswap.profiles.library import load_profile
from slackswap.quantities import format_bytes, format_ns

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "profiles" / "data"
PUBLIC = Path(os.environ.get("SLACKSWAP_PUBLIC_DATA", ROOT.parent / "shared" / "data"))
MODELS = "slackswap.profiles.capture.models"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one shipped profile is made."""

    target: str
    device: str
    description: str
    optimizer: str = "mixed-adam"

    def make(self, name: str) -> Profile:
        """Capture the profile."""
        return capture(
            f"{MODELS}:{self.target}",
            device=self.device,
            hardware="a100-80gb" if self.device == "fake" else None,
            optimizer=self.optimizer,
            name=name,
            description=self.description,
            iterations=20,
            warmup=3,
        )


@dataclass(frozen=True, slots=True)
class Import:
    """Which public file a shipped profile is imported from."""

    file: str
    origin: str
    device: str = "imported"

    def make(self, name: str, folder: Path) -> Profile:
        """Import the profile; source and licence stand in its provenance."""
        form = self.file.partition("/")[0]
        profile = import_profile(folder / self.file, format=form, name=name)
        notes = {**profile.provenance, "origin": self.origin, "license": "MIT"}
        return replace(profile, provenance=notes)


ACESO = "https://github.com/eth-easl/sailor, outputs of the Aceso profiler"
NEUSIGHT = "https://github.com/sitar-lab/NeuSight, commit 6945927, label files"
IMPORTS: dict[str, Import] = {
    "gpt-neo-2.7b-a100": Import("aceso/A100-40_GPT-Neo-2.7_mbs4_tp1.csv", ACESO),
    "opt-350m-a100": Import("aceso/A100-40_OPT-350_mbs4_tp1.csv", ACESO),
    **{
        name: Import(f"neusight/NVIDIA_{file}.csv", NEUSIGHT)
        for name, file in (
            ("bert-large-h100", "H100_80GB_HBM3_bert_large-train-512-8"),
            ("gpt2-large-h100", "H100_80GB_HBM3_gpt2_large-train-1024-4"),
            ("gpt3-2.7b-h100", "H100_80GB_HBM3_gpt3_27-train-2048-1"),
            ("bert-large-a100", "A100_80GB_PCIe_bert_large-train-512-8"),
            ("gpt3-xl-a100", "A100_80GB_PCIe_gpt3_xl-train-2048-1"),
        )
    },
}


def _traced() -> dict[str, Recipe]:
    language = {
        "bert-large": ("bert_large", "BERT-Large", "batch 32, sequence 512"),
        "gpt2-xl": ("gpt2_xl", "GPT-2 XL", "batch 8, sequence 1024"),
        "llama-7b": ("llama_7b", "Llama-7B", "batch 4, sequence 2048"),
        "llama3-8b": ("llama3_8b", "Llama-3-8B", "batch 2, sequence 4096"),
        "vit-l": ("vit_l", "ViT-L/16", "batch 64, 224 pixels"),
    }
    recipes = {
        f"{name}-hf-{attention}": Recipe(
            f"{target}_{attention}", "fake",
            f"{title}, Hugging Face, {label} attention, {sizes}, bf16",
        )
        for name, (target, title, sizes) in language.items()
        for attention, label in (("eager", "eager"), ("sdpa", "SDPA"))
    }
    recipes["resnet50-hf"] = Recipe(
        "resnet50", "fake", "ResNet-50, Hugging Face, batch 64, 224 pixels, fp32", "momentum"
    )
    return recipes


RECIPES: dict[str, Recipe] = {
    **_traced(),
    "gpt-small-cpu": Recipe(
        "gpt_small", "cpu", "GPT-2 of 4 layers x 256, measured on a CPU, batch 4, sequence 256, "
        "fp32", "adamw",
    ),
    "resnet18-cpu": Recipe(
        "resnet18", "cpu", "ResNet-18, measured on a CPU, batch 8, 224 pixels, fp32", "momentum"
    ),
    "bert-large-hf-sdpa-cuda": Recipe(
        "bert_large_sdpa", "cuda", "BERT-Large, Hugging Face, SDPA, measured, batch 32, "
        "sequence 512, bf16",
    ),
    "gpt2-xl-hf-sdpa-cuda": Recipe(
        "gpt2_xl_sdpa", "cuda", "GPT-2 XL, Hugging Face, SDPA, measured, batch 8, sequence 1024, "
        "bf16",
    ),
    "llama-7b-hf-sdpa-cuda": Recipe(
        "llama_7b_sdpa_single", "cuda", "Llama-7B, Hugging Face, SDPA, measured, batch 1, "
        "sequence 2048, bf16",
    ),
}

GROUPS = {
    "analytic": "analytic", "traced": "fake", "imported": "imported", "cpu": "cpu", "cuda": "cuda",
}
#: Whose bytes depend on nothing but versions.
REPEATABLE = ("fake", "imported")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Remake the profiles of the library.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--only", choices=GROUPS, help="those of one kind")
    parser.add_argument("--folder", type=Path, default=PUBLIC, help="public measurements")
    parser.add_argument("--check", action="store_true",
                        help="compare with the shipped files bit for bit; leave measured ones out")
    parser.add_argument("--threads", type=int, default=1,
                        help="CPU threads of measured ones; one is the most repeatable")
    options = parser.parse_args(arguments)
    analytic = [entry.name for entry in library_entries() if entry.source == "analytic"]
    recipes: dict[str, Recipe | Import] = {**RECIPES, **IMPORTS}
    unknown = sorted(set(options.names) - {*recipes, *analytic})
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join((*recipes, *analytic))}")
    torch.set_num_threads(options.threads)
    failures = 0
    for name in analytic if options.only in (None, "analytic") else ():
        if not options.names or name in options.names:
            print(f"{name:26} {load_profile(name).sha256}")
    for name, recipe in recipes.items():
        if options.names and name not in options.names:
            continue
        if options.only and recipe.device != GROUPS[options.only]:
            continue
        if options.check and recipe.device not in REPEATABLE:
            continue
        if recipe.device == "cuda" and not torch.cuda.is_available():
            print(f"{name:26} left out: no CUDA device")
            continue
        if isinstance(recipe, Import) and not (options.folder / recipe.file).exists():
            print(f"{name:26} left out: no {options.folder / recipe.file}; name its folder with "
                  "--folder or SLACKSWAP_PUBLIC_DATA")
            continue
        started = time.perf_counter()
        try:
            profile = (
                recipe.make(name, options.folder) if isinstance(recipe, Import)
                else recipe.make(name)
            )
        except (SlackSwapError, torch.cuda.OutOfMemoryError) as error:
            print(f"{name:26} failed: {error}")
            failures += 1
            continue
        path = DATA / f"{name}.json.gz"
        if options.check:
            failures += not _same(profile, path)
            continue
        profile.save(path)
        print(_line(profile, path, time.perf_counter() - started), flush=True)
    return 1 if failures else 0


def _same(profile: Profile, path: Path) -> bool:
    """Whether a profile, saved, is the shipped file bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        profile.save(made)
        same = path.exists() and made.read_bytes() == path.read_bytes()
    print(f"{profile.name:26} {'the same bytes' if same else 'DIFFERS from the shipped file'}",
          flush=True)
    return same


def _line(profile: Profile, path: Path, seconds: float) -> str:
    notes = profile.provenance
    saved = int(profile.graph.nbytes[profile.graph.is_saved].sum())
    text = (
        f"{profile.name:26} {len(profile.forward):5} + {len(profile.backward):5} ops  "
        f"{format_bytes(saved):>8} saved  {format_ns(profile.duration_ns):>8}  "
        f"{path.stat().st_size / 1e3:5.1f} kB  made in {seconds:.0f} s"
    )
    if "plain_iteration_ns" in notes:
        ratio = notes["operators_ns"] / notes["plain_iteration_ns"]
        text += f"  operators / plain iteration = {ratio:.3f}"
    if notes.get("unpriced_operators"):
        text += f"  unpriced: {notes['unpriced_operators']}"
    return text


if __name__ == "__main__":
    raise SystemExit(main())
