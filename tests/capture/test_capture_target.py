"""What a build function may return, and how mistakes are told."""

from __future__ import annotations

import functools
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="capture needs the torch extra")

import capture_nets as nets  # noqa: E402
from torch import nn  # noqa: E402

from slackswap.errors import Skipped, SlackSwapError  # noqa: E402
from slackswap.profiles.capture import capture  # noqa: E402
from slackswap.profiles.capture.target import load_build  # noqa: E402


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x, scale=1.0):
        return {"loss": self.layer(x).mean() * scale}


def closure():
    layer = nn.Linear(3, 1)
    return (lambda x: layer(x).mean()), torch.randn(2, 3)


def partial():
    def loss(model, x):
        return model(x).mean()

    return functools.partial(loss, nn.Linear(3, 1)), (torch.randn(2, 3),)


def bound_method():
    class Trainer:
        def __init__(self):
            self.models = {"only": nn.Linear(3, 1)}

        def loss(self, x):
            return self.models["only"](x).mean()

    trainer = Trainer()

    def loss(x, model=trainer.models["only"]):
        return trainer.loss(x) + 0 * model.weight.sum()

    return loss, [torch.randn(2, 3)]


def keywords():
    return Wrapped(), {"x": torch.randn(2, 3), "scale": 2.0}


@pytest.mark.parametrize("build", [closure, partial, bound_method, keywords],
                         ids=lambda build: build.__name__)
def test_ways_to_give_a_loss(build):
    profile = capture(build, device="fake")
    weights = [op for op in profile.backward if op.kind == "gemm"]
    assert weights
    assert profile.static_bytes == 4 * 4 * (3 + 1)  # weight, gradient, two moments


def test_target_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_step_module.py").write_text(
        "import torch\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0)), "
        "torch.randn(1, 2)\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    profile = capture("my_step_module:build", device="fake")
    assert profile.name == "my-step-module"
    assert profile.provenance["model"] == "my_step_module:build"
    assert sys.path == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_module", "is not MODULE:FUNCTION"),
        ("no_such_module_anywhere:build", "cannot be loaded"),
        ("json:no_such_function", "cannot be loaded"),
        ("json:__doc__", "is str, not a function"),
    ],
)
def test_targets_that_do_not_load(target, message):
    with pytest.raises(SlackSwapError, match=message):
        load_build(target)


def nothing():
    return None


def no_loss():
    return nn.Linear(3, 2), torch.randn(2, 3)


def no_parameters():
    return (lambda x: x.sum()), torch.randn(2, 3)


def failing():
    raise ValueError("no such file: weights.bin")


def another_device():
    return nn.Linear(2, 1, device="meta"), torch.randn(1, 2)


def data_dependent():
    layer = nn.Linear(2, 1)
    return (lambda x: layer(x[: int(x.sum().item())]).mean()), torch.randn(4, 2)


def no_autocast():
    layer = nn.Linear(2, 1)

    def loss(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return layer(x).mean()

    return loss, torch.randn(4, 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (nothing, "returned NoneType"),
        (no_loss, "holds no scalar loss"),
        (no_parameters, "no parameter to train"),
        (failing, r"ValueError: no such file: weights.bin"),
        (another_device, "is on meta, not on cpu"),
        (data_dependent, "depends on the value of a tensor"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_builds_that_are_refused(build, message):
    with pytest.raises(SlackSwapError, match=message):
        capture(build, device="fake")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is at hand")
def test_without_a_gpu():
    with pytest.raises(SlackSwapError, match="there is no CUDA device"):
        capture(nets.transformer, device="cuda")
    # autocast("cuda") would silently do nothing here, and the capture would be of fp32.
    with pytest.raises(SlackSwapError, match="CUDA is not available"):
        capture(no_autocast, device="fake")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"device": "tpu"}, "device"),
        ({"device": "cpu", "iterations": 0}, "iterations"),
        ({"device": "fake", "optimizer": "adagrad"}, "optimizer"),
        ({"device": "fake", "hardware": "a100-8gb"}, "hardware"),
    ],
)
def test_options_that_are_refused(options, where):
    with pytest.raises(SlackSwapError) as caught:
        capture(nets.transformer, **options)
    assert caught.value.where == where


def test_without_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Skipped, match=r"ip install 'slackswap\[torch\]'"):
        capture(nets.transformer)


def test_pytorch_is_imported_late():
    code = "import sys, slackswap.profiles.capture; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
