"""A planned step in an ordinary training loop, on two copy threads."""

from __future__ import annotations

import copy
import functools
import gc
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="running a plan needs the torch extra")

import capture_nets  # noqa: E402
from execution_runs import LINK, call_like, captured_net, planned_step  # noqa: E402

from slackswap import Hardware, Infeasible, InvalidPlan, Plan, Problem, solve  # noqa: E402
from slackswap.errors import SlackSwapError  # noqa: E402
from slackswap.execution import DifferentModel, ExecutionFailed, compile  # noqa: E402
from slackswap.execution.threads import ThreadLink  # noqa: E402
from slackswap.execution.values import IterationValues, same_bits  # noqa: E402

QUICK = Hardware("a quick link", 4 * 10**9, 4 * 10**9, 1_000)


@pytest.fixture(autouse=True)
def few_threads():
    """Copy threads and PyTorch's own would fight for the cores of a small machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


cached_net = functools.cache(captured_net)


def swap_all(name: str = "convnet", link=None, *, fresh: bool = False):
    """A step that swaps every saved tensor, and the capture it was made from."""
    captured = captured_net(name) if fresh else cached_net(name)
    profile = captured.profile
    saved = profile.graph.is_saved
    plan = Plan({t.name: "swap" for i, t in enumerate(profile.tensors) if saved[i]})
    step = planned_step(captured, Problem(profile, QUICK, None), plan, link or ThreadLink())
    return call_like(captured, step), captured, step


def batches(captured, number: int):
    """Other values than those of the capture, of the same shapes."""

    def other(t):
        return torch.randn_like(t) if t.is_floating_point() else torch.randint(0, 10, t.shape)

    return [[other(t) for t in captured.subject.tensors] for _ in range(number)]


@pytest.mark.parametrize(("name", "budget"), [("transformer", 0.75), ("convnet", 0.95),
                                              ("lora", 0.9), ("autocast", 0.85)])
def test_six_steps_of_adamw_with_accumulation_and_clipping(name, budget):
    captured = cached_net(name)
    problem = Problem(captured.profile, LINK, budget)
    plan = solve(problem.with_budget(problem.budget_bytes * 9 // 10), "slackswap").plan
    planned = planned_step(captured, problem, plan, ThreadLink())
    model = captured.subject.step
    start = copy.deepcopy(model.state_dict())
    data = batches(captured, 6)

    def trained(call):
        model.load_state_dict(start)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        torch.manual_seed(7)
        losses = []
        for number, batch in enumerate(data):
            loss = call(*batch)
            (loss / 2).backward()
            losses.append(loss.detach().clone())
            if number % 2:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        return losses, list(copy.deepcopy(model.state_dict()).values())

    plain, ours = trained(model), trained(call_like(captured, planned))
    assert same_bits(plain[0], ours[0])
    assert same_bits(plain[1], ours[1])
    assert not same_bits(plain[1], list(start.values()))


def test_compile_takes_a_model_and_leaves_it_as_it_was():
    model, inputs = capture_nets.convnet()
    before = copy.deepcopy(model.state_dict())
    torch.manual_seed(3)
    expected_random = torch.rand(1)
    torch.manual_seed(3)
    step = compile(model, inputs, budget="95%", planner="slackswap", hardware=QUICK, iterations=1)
    assert torch.equal(torch.rand(1), expected_random)
    assert same_bits(list(model.state_dict().values()), list(before.values()))
    assert {id(p) for p in step.parameters()} == {id(p) for p in model.parameters()}
    loss = step(**inputs)
    loss.backward()
    ours = [p.grad for p in model.parameters()]
    model.load_state_dict(before)
    model.zero_grad()
    model(**inputs).backward()
    assert same_bits(ours, [p.grad for p in model.parameters()])
    report = step.report()
    assert report.measured.peak_bytes <= report.budget_bytes
    assert "predicted" in str(report)


def test_a_profile_or_plan_of_another_model_is_refused_with_the_first_difference():
    model, inputs = capture_nets.convnet()
    other = cached_net("unet").profile
    with pytest.raises(DifferentModel, match=r"forward op 0 is 'down1/convolution' there and"):
        compile(model, inputs, budget=None, profile=other, hardware=QUICK, iterations=1)
    plan = Plan({"down1/convolution": "swap"})
    with pytest.raises(InvalidPlan, match="down1/convolution"):
        compile(model, inputs, budget=None, plan=plan, hardware=QUICK, iterations=1)
    # Measured again, the same model takes a plan for the earlier profile.
    again = cached_net("convnet").profile
    kept = Plan({again.tensors[-1].name: "keep"}, profile_sha256=again.sha256)
    step = compile(model, inputs, budget=None, plan=kept, profile=again, hardware=QUICK,
                   iterations=1)
    step(**inputs).backward()


def test_a_smaller_budget_than_any_plan_needs_is_an_error_that_says_so():
    model, inputs = capture_nets.convnet()
    with pytest.raises(Infeasible, match="no plan") as error:
        compile(model, inputs, budget="5%", hardware=QUICK, iterations=1)
    assert "larger budget" in str(error.value)


def test_without_gradients_the_model_itself_runs():
    call, captured, step = swap_all()
    torch.manual_seed(1)
    with torch.no_grad():
        loss = call(*captured.subject.tensors)
    torch.manual_seed(1)
    assert same_bits([loss], [captured.subject.step(*captured.subject.tensors).detach()])
    assert step.last is None


def test_two_forwards_in_flight_are_refused_and_a_dropped_loss_is_forgotten():
    call, captured, _ = swap_all()
    loss = call(*captured.subject.tensors)
    with pytest.raises(ExecutionFailed, match="in flight"):
        call(*captured.subject.tensors)
    del loss
    gc.collect()
    call(*captured.subject.tensors).backward()


def test_a_second_backward_and_gradients_of_gradients_are_refused():
    call, captured, _ = swap_all()
    loss = call(*captured.subject.tensors)
    loss.backward(retain_graph=True)
    with pytest.raises(ExecutionFailed, match="activations are gone"):
        loss.backward()
    loss = call(*captured.subject.tensors)
    parameters = [p for p in captured.subject.step.parameters() if p.requires_grad]
    with pytest.raises(ExecutionFailed, match="gradients of gradients"):
        torch.autograd.grad(loss, parameters, create_graph=True)


def test_a_parameter_changed_between_the_passes_is_refused():
    call, captured, _ = swap_all()
    loss = call(*captured.subject.tensors)
    with torch.no_grad():
        for parameter in captured.subject.step.parameters():
            parameter.mul_(1.0)
    with pytest.raises(ExecutionFailed, match="changed between"):
        loss.backward()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda step, inputs: (step, [inputs[0][:, :-1]]), "captured with"),
        (lambda step, inputs: (step, [inputs[0].int()]), "dtype"),
        (lambda step, inputs: (step.eval(), inputs), "evaluation mode"),
        (lambda step, inputs: (step.requires_grad_(False), inputs), "requires_grad"),
        (lambda step, inputs: (step, [*inputs, inputs[0]]), "nested otherwise"),
    ],
)
def test_what_differs_from_the_capture_is_named(change, says):
    _, captured, step = swap_all("lora", fresh=True)
    step, inputs = change(step, list(captured.subject.tensors))
    started = time.monotonic()
    with pytest.raises(SlackSwapError, match=says):
        step(*inputs)
    assert time.monotonic() - started < 5


def test_autocast_around_a_step_that_was_captured_without_is_named():
    call, captured, _ = swap_all()
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(DifferentModel, match="auto"):
        call(*captured.subject.tensors)


class Killed(BaseException):
    """What ends a thread without being an error of the program."""


@pytest.mark.parametrize("method", ["offload", "prefetch"])
@pytest.mark.parametrize("how", [Killed, MemoryError])
def test_a_killed_copy_thread_ends_the_step_with_an_error_and_the_next_one_runs(
    monkeypatch, method, how
):
    call, captured, step = swap_all()
    captured.subject.step.zero_grad()
    parameters = list(captured.subject.step.parameters())
    before = copy.deepcopy(parameters)
    original, calls = getattr(IterationValues, method), []

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise how("killed by the test")
        return original(*arguments)

    monkeypatch.setattr(IterationValues, method, dying)
    started = time.monotonic()
    with pytest.raises(ExecutionFailed, match="thread failed"):
        call(*captured.subject.tensors).backward()
    assert time.monotonic() - started < 8
    assert all(p.grad is None for p in parameters)
    assert same_bits(parameters, before)
    monkeypatch.undo()
    call(*captured.subject.tensors).backward()
    assert step.last is not None


def test_a_copy_that_hangs_is_given_up(monkeypatch):
    call, captured, _ = swap_all(link=ThreadLink(patience_s=0.5))
    gate = threading.Event()
    original = IterationValues.offload
    monkeypatch.setattr(
        IterationValues, "offload", lambda *arguments: (gate.wait(20), original(*arguments))
    )
    started = time.monotonic()
    with pytest.raises(ExecutionFailed, match="no copy has ended"):
        call(*captured.subject.tensors).backward()
    assert time.monotonic() - started < 10
    gate.set()


def test_a_host_that_gives_no_memory_is_an_error_before_anything_runs(monkeypatch):
    call, captured, _ = swap_all()

    def refused(*_arguments, **_keywords):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "empty", refused)
    with pytest.raises(ExecutionFailed, match="host does not give"):
        call(*captured.subject.tensors)


def test_the_host_pool_does_not_grow():
    call, captured, step = swap_all("counting", ThreadLink())
    sizes, places = set(), set()
    for _ in range(1000):
        call(*captured.subject.tensors).backward()
        sizes.add(step.host_bytes)
        places.add(step.take_host().memory.data_ptr())
    assert len(sizes) == len(places) == 1
    assert threading.active_count() < 10


def test_threads_end_with_their_step():
    call, captured, step = swap_all("counting", ThreadLink())
    call(*captured.subject.tensors).backward()
    threads = [worker.thread for worker in step._link._workers.values()]
    assert all(thread.is_alive() for thread in threads)
    del call, step
    gc.collect()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_live_admission_keeps_the_budget_on_threads_with_a_link_slower_than_planned():
    """The ledger never lets memory go above the budget, however late copies end."""
    for name in ("transformer", "convnet", "unet", "lora"):
        captured = cached_net(name)
        problem = Problem(captured.profile, QUICK, 0.9)
        solution = solve(problem.with_budget(problem.budget_bytes * 9 // 10), "on-demand")
        if solution.plan is None or not solution.status.has_plan:
            continue
        try:
            step = planned_step(captured, problem, solution.plan,
                                ThreadLink(Hardware("slow", 10**8, 10**8, 20_000)))
        except Infeasible:
            continue
        call_like(captured, step)(*captured.subject.tensors).backward()
        assert step.last.peak_bytes <= problem.budget_bytes
