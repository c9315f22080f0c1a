"""One cost model, as a readable reference and as a compiled kernel."""

#: Changes whenever some plan's score may change; part of the identity of every stored result.
#: Contention did not change it: without it all scores are as before, and hardware with it has
#: another hash than any that was scored before.
COST_MODEL_VERSION = "1"
