"""Remake the captured profiles that the package ships: ``make profiles``.

Traced ones come from full-size models on fake tensors, priced for an A100; they are the same bytes
whenever the versions of PyTorch and transformers are. Measured ones run small models on this
machine's CPU. Where there is a CUDA device, BERT-Large, GPT-2 XL and a Llama-7B are measured on it
too (this part was written without a GPU at hand).

    python benchmarks/make_profiles.py                    all that this machine can make
    python benchmarks/make_profiles.py gpt-small-cpu      some
    python benchmarks/make_profiles.py --only traced      traced, cpu or cuda
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slackswap.errors import SlackSwapError
from slackswap.profile import Profile
from slackswap.profiles.capture import capture
from slackswap.quantities import format_bytes, format_ns

DATA = Path(__file__).resolve().parent.parent / "profiles" / "data"
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

GROUPS = {"traced": "fake", "cpu": "cpu", "cuda": "cuda"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Remake the captured profiles.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--only", choices=GROUPS, help="those of one device")
    parser.add_argument("--threads", type=int, default=1,
                        help="CPU threads of measured ones; one is the most repeatable")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(RECIPES))
    if unknown:
        parser.error(f"{unknown[0]!r} is not one of {', '.join(RECIPES)}")
    torch.set_num_threads(options.threads)
    failures = 0
    for name, recipe in RECIPES.items():
        if options.names and name not in options.names:
            continue
        if options.only and recipe.device != GROUPS[options.only]:
            continue
        if recipe.device == "cuda" and not torch.cuda.is_available():
            print(f"{name:26} left out: no CUDA device")
            continue
        started = time.perf_counter()
        try:
            profile = recipe.make(name)
        except (SlackSwapError, torch.cuda.OutOfMemoryError) as error:
            print(f"{name:26} failed: {error}")
            failures += 1
            continue
        path = DATA / f"{name}.json.gz"
        profile.save(path)
        print(_line(profile, path, time.perf_counter() - started), flush=True)
    return 1 if failures else 0


def _line(profile: Profile, path: Path, seconds: float) -> str:
    notes = profile.provenance
    text = (
        f"{profile.name:26} {len(profile.forward):5} + {len(profile.backward):5} ops  "
        f"{format_bytes(notes['saved_bytes']):>8} saved  {format_ns(profile.duration_ns):>8}  "
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
