"""The captured graph against autograd itself: saved set, closures, aliases, gradient memory."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="capture needs the torch extra")

import capture_nets as nets  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from slackswap.errors import SlackSwapError, SlackSwapWarning  # noqa: E402
from slackswap.profile import Action  # noqa: E402
from slackswap.profiles.capture import capture  # noqa: E402
from slackswap.profiles.capture.assembly import gradient_memory, number_layers  # noqa: E402
from slackswap.profiles.capture.replay import ForwardRun, check_closures  # noqa: E402
from slackswap.profiles.capture.session import traced_step  # noqa: E402


def by_name(build):
    return build.__name__


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize("build", nets.ALL, ids=by_name)
def test_saved_bytes_are_what_autograds_hooks_count(build, device):
    with traced_step(build, device=device) as traced:
        assert traced.lowered.saved_bytes == traced.hook_bytes > 0


@pytest.mark.parametrize("build", nets.ALL, ids=by_name)
def test_every_closure_gives_the_same_bits(build):
    with traced_step(build, device="cpu") as traced:
        replay = check_closures(traced.subject, traced.lowered)
        recomputable = {
            traced.lowered.storages[storage].name
            for op in traced.lowered.forward if op.recomputable
            for storage in op.writes
        }
    assert set(replay.compared) == recomputable
    assert replay.different == ()


def test_lstm():
    with traced_step(nets.recurrent, device="fake") as traced:
        assert traced.lowered.saved_bytes == traced.hook_bytes
    # On a CPU, oneDNN's fused LSTM cannot be traced; the composite one can.
    with (
        pytest.raises(SlackSwapError, match=r"torch.backends.mkldnn.set_flags\(False\)"),
        traced_step(nets.recurrent, device="cpu"),
    ):
        pass
    torch._C._set_mkldnn_enabled(False)
    try:
        with traced_step(nets.recurrent, device="cpu") as traced:
            assert traced.lowered.saved_bytes == traced.hook_bytes
            assert check_closures(traced.subject, traced.lowered).different == ()
    finally:
        torch._C._set_mkldnn_enabled(True)


def test_replay_notices_a_read_that_is_missing():
    with traced_step(nets.convnet, device="cpu") as traced:
        lowered = traced.lowered
        place = next(i for i, op in enumerate(lowered.forward) if op.kind == "residual")
        broken = list(lowered.forward)
        for reads in (broken[place].reads[:1], broken[place].reads[1:]):
            broken[place] = replace(lowered.forward[place], reads=reads)
            wrong = replace(lowered, forward=tuple(broken))
            with pytest.raises(KeyError):
                check_closures(traced.subject, wrong)


def test_replay_notices_other_random_numbers():
    with traced_step(nets.transformer, device="cpu") as traced:
        run = ForwardRun(traced.subject, traced.lowered)
        run._states.clear()
        random = next(op for op in traced.lowered.forward if op.kind == "random")
        replay = run.recompute(random.writes, traced.lowered.inputs)
    assert replay.different == replay.compared != ()


def test_two_layers_in_full():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2, bias=False))

    def loss(x):
        return model(x).square().mean()

    profile = capture(lambda: (loss, torch.randn(3, 4)), device="cpu", iterations=1, warmup=0)
    names = [tensor.name for tensor in profile.tensors]
    assert names == ["input.0", "0/addmm", "1/relu", "2/mm", "pow", "mean"]
    assert [tensor.nbytes for tensor in profile.tensors] == [48, 96, 96, 24, 24, 4]

    def shape(op):
        return op.name, [names[t] for t in op.reads], op.layer, op.kind

    assert [(*shape(op), [names[t] for t in op.writes]) for op in profile.forward] == [
        ("0/addmm", ["input.0"], 0, "gemm", ["0/addmm"]),
        ("1/relu", ["0/addmm"], 1, "elementwise", ["1/relu"]),
        ("2/mm", ["1/relu"], 2, "gemm", ["2/mm"]),
        ("pow", ["2/mm"], None, "elementwise", ["pow"]),
        ("mean", ["pow"], None, "reduction", ["mean"]),
    ]
    assert [(*shape(op), op.carried, op.workspace) for op in profile.backward] == [
        ("mean.bwd", [], None, "elementwise", 0, 24),
        # The power's derivative and its product: two temporaries beside the result.
        ("pow.bwd", ["2/mm"], None, "elementwise", 24, 96),
        ("2/mm.bwd", ["1/relu"], 2, "gemm", 24, 120),  # the weight's gradient is static memory
        ("1/relu.bwd", ["1/relu"], 1, "elementwise", 96, 192),
        ("0/addmm.bwd", ["input.0"], 0, "gemm", 96, 96),
    ]


class StorageLog(TorchDispatchMode):
    """Records every storage that eager execution makes, and when it goes."""

    def __init__(self, known):
        super().__init__()
        self.events = []
        self.known = dict.fromkeys(known)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.note(leaf.untyped_storage())
        return result

    def note(self, storage):
        identity = storage._cdata
        if identity not in self.known:
            number, nbytes = len(self.events), storage.nbytes()
            self.known[identity] = number
            self.events.append((number, nbytes))

            def gone():
                del self.known[identity]
                self.events.append((number, -nbytes))

            weakref.finalize(storage, gone)


def eager_peaks(subject):
    """Peak bytes of an eager iteration: forward, backward; parameter gradients left out."""
    static = [t.untyped_storage()._cdata for t in (*subject.static_tensors(), *subject.tensors)]
    log = StorageLog(static)
    with log:
        loss = subject.step(*subject.tensors)
        turn = len(log.events)
        loss.backward()
    gradients = {
        log.known[parameter.grad.untyped_storage()._cdata]
        for parameter in subject.step.parameters() if parameter.grad is not None
    }
    level = sum(tensor.untyped_storage().nbytes() for tensor in subject.tensors)
    levels = []
    for number, change in log.events:
        if number not in gradients:
            level += change
        levels.append(level)
    return max(levels[:turn]), max(levels[turn:])


def perceptron():
    layers = [nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(3)]
    model = nn.Sequential(*layers)

    def loss(x):
        return model(x).square().mean()

    return loss, torch.randn(16, 32)


#: The loss and its gradient, which the graph does not count while they are held: 4 bytes each.
LOSS = 8


@pytest.mark.parametrize("build", [perceptron, nets.convnet, nets.transformer], ids=by_name)
def test_memory_is_what_eager_execution_allocates(build):
    profile = capture(build, device="cpu", iterations=1, warmup=0)
    forward, backward = profile.graph.keep_all_levels
    with traced_step(build, device="cpu") as traced:
        eager_forward, eager_backward = eager_peaks(traced.subject)
    assert 0 <= eager_forward - forward.max() <= LOSS
    # The tied weight's first gradient is counted as the parameter's own, on which the second is
    # added; the log sees a storage apart.
    slack = 50 * 32 * 4 if build is nets.transformer else 0
    assert 0 <= eager_backward - backward.max() <= LOSS + slack


def test_a_tied_weight_has_one_gradient():
    with traced_step(nets.transformer, device="fake") as traced:
        parameters = list(traced.subject.step.parameters())
        assert len(traced.lowered.joint.gradients) == len(parameters)
        total = next(op for op in traced.lowered.backward if op.name == "embed/accumulate")
        assert total.writes == ()
        embedding = 50 * 32 * 4
        # The head's part lies in the gradient itself and is not carried through backward.
        carried = {
            node.name: bytes_carried
            for node, (bytes_carried, _) in zip(
                traced.lowered.nodes, gradient_memory(traced.lowered), strict=True
            )
        }
        residual = branch = 2 * 16 * 32 * 4
        assert carried["blocks.1.feed.2/addmm.bwd"] == residual + branch
        assert carried["embed/accumulate"] == embedding


def test_buffers_that_change_are_not_recomputed_from():
    profile = capture(nets.counting, device="cpu", iterations=1, warmup=0)
    fixed = {op.name for op in profile.forward if not op.recomputable}
    assert fixed == {"add", "add#2"}
    scale = profile.tensors[profile.index_of["add"]]
    assert scale.allowed == (Action.KEEP, Action.SWAP)
    convnet = capture(nets.convnet, device="fake")
    # Batch norm itself may run again: in training it does not use the running statistics.
    assert {op.name for op in convnet.forward if not op.recomputable} == {
        "norm1/add", "norm2/add"
    }


def test_a_branch_on_a_mask_follows_the_example():
    def built(value):
        def build():
            return nets.Oddities(), (torch.randn(4, 6), torch.full((4,), value))
        return build

    for device in ("cpu", "fake"):
        taken = capture(built(True), device=device, iterations=1, warmup=0)
        passed = capture(built(False), device=device, iterations=1, warmup=0)
        assert any("masked_fill" in op.name for op in taken.forward)
        assert not any("masked_fill" in op.name for op in passed.forward)


def test_checkpoints_inside_the_model_are_named():
    with pytest.warns(SlackSwapWarning, match="checkpoints inside the model"):
        profile = capture(nets.checkpointed, device="fake")
    assert profile.provenance["saved_bytes"] > profile.provenance["saved_bytes_by_hooks"]


def test_residual_sums_are_told_from_other_sums():
    profile = capture(nets.transformer, device="fake")
    residual = [op.name for op in profile.forward if op.kind == "residual"]
    assert residual == ["blocks.0/add", "blocks.0/add#2", "blocks.1/add", "blocks.1/add#2"]
    rotated = nn.Linear(4, 4)

    def loss(x):
        y = rotated(x)
        return (y * 2 + y.flip(-1) * 3).square().mean()

    plain = capture(lambda: (loss, torch.randn(2, 4)), device="fake")
    assert [op.kind for op in plain.forward if op.name == "add"] == ["elementwise"]


def test_layers_are_numbered_blocks():
    paths = ["embed", "layer1.0.conv", "layer1.1.conv", "layer2.0.conv", "layer1.0", "head.10x"]
    assert number_layers(paths) == {
        "layer1.0.conv": 0, "layer1.1.conv": 1, "layer2.0.conv": 2, "layer1.0": 0
    }


def test_random_state_and_default_dtype_stay_as_they_were():
    before = torch.get_rng_state()
    first = capture(nets.transformer, device="fake")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert capture(nets.transformer, device="fake").sha256 == first.sha256
