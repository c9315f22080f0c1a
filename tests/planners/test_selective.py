from handmade import LINK, actions_of, plan_of

from slackswap import BackwardOp, ForwardOp, Problem, Profile, Status, Tensor, load_profile, solve
from slackswap.analysis.layers import layers_of
from slackswap.planners.selective import SelectiveCheckpointing, attention_internals


def blocks(count: int) -> Profile:
    """Blocks of eager attention: q, scores, softmax p, dropped d, context c, result x."""
    tensors = [Tensor("x", 4)]
    forward, backward = [], []
    for n in range(count):
        before = len(tensors) - 1
        q, s, p, d, c, x = range(before + 1, before + 7)
        tensors += [
            Tensor(f"{n}.{name}", size)
            for name, size in (("q", 4), ("s", 16), ("p", 16), ("d", 16), ("c", 4), ("x", 4))
        ]
        ops = (
            ("gemm", (before,), q, (before,)),
            ("attention", (q,), s, (q,)),
            ("softmax", (s,), p, (p,)),
            ("dropout", (p,), d, ()),
            ("attention", (d, q), c, (d, q)),
            ("gemm", (c,), x, (c,)),
        )
        for kind, reads, written, saves in ops:
            forward.append(
                ForwardOp(f"{n}.{kind}{written}", 10, reads, (written,), layer=n, kind=kind)
            )
            backward.append(
                BackwardOp(f"{n}.{kind}{written}.bwd", 20, saves, layer=n, kind=kind)
            )
    return Profile("blocks", "random", tuple(tensors), tuple(forward), tuple(backward[::-1]))


NET = blocks(3)


def test_internals_are_what_attention_writes_for_itself():
    # p is read by dropout and backward, d by the second product and backward. s is dropped anyway;
    # q is written before attention begins, c is what it gives out.
    layers = layers_of(NET)
    internals = attention_internals(NET, NET.graph, layers[1])
    assert [NET.tensors[t].name for t in internals] == ["1.p", "1.d"]
    # A fused kernel has none.
    fused = load_profile("bert-large")
    assert all(
        not len(attention_internals(fused, fused.graph, layer)) for layer in layers_of(fused)
    )


def test_internals_of_as_few_blocks_as_needed_then_whole_blocks():
    # A block saves q, p, d, c and its result: 44 bytes. Keeping all, most is in use while the last
    # product runs: the input 4 and three times 44. p and d of a block are 32 of these.
    assert Problem(NET, LINK).keep_all_peak_bytes == 136
    assert actions_of(plan_of(NET, 136, SelectiveCheckpointing(every_block=False))) == {}
    one = {"0.p": "recompute", "0.d": "recompute"}
    assert actions_of(plan_of(NET, 135, SelectiveCheckpointing(every_block=False))) == one
    assert actions_of(plan_of(NET, 104, SelectiveCheckpointing(every_block=False))) == one
    two = {**one, "1.p": "recompute", "1.d": "recompute"}
    assert actions_of(plan_of(NET, 103, SelectiveCheckpointing(every_block=False))) == two
    # With all three open most is in use while the last block makes p or d, there and back: the
    # input 4, two blocks of q, c and result, 24, and q, and two of s, p and d: 64.
    three = {**two, "2.p": "recompute", "2.d": "recompute"}
    assert actions_of(plan_of(NET, 64, SelectiveCheckpointing(every_block=False))) == three
    # Then blocks as a whole: q and c of the first, 8 bytes, go as well.
    assert actions_of(plan_of(NET, 63, SelectiveCheckpointing(every_block=False))) == {
        **three, "0.q": "recompute", "0.c": "recompute"
    }
    # Megatron-LM's switch opens all blocks at once.
    every = SelectiveCheckpointing(every_block=True)
    assert actions_of(plan_of(NET, 135, every)) == three
    assert solve(Problem(NET, LINK, 43), every).status is Status.INFEASIBLE


def test_blocks_alone_equal_block_checkpointing():
    from slackswap.profiles.library import profile_hardware

    profile = load_profile("gpt2-xl")
    problem = Problem(profile, profile_hardware("gpt2-xl"), 0.5)
    ours = solve(problem, SelectiveCheckpointing(every_block=False))
    blocks = solve(problem, "block-checkpointing")
    assert ours.statistics["whole_blocks"] == blocks.statistics["blocks"]
    assert ours.evaluation.iteration_ns == blocks.evaluation.iteration_ns
