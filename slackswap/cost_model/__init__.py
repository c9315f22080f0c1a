"""The referee: one cost model, as a readable reference and as a compiled kernel."""

#: Changes whenever some plan's score may change; part of the identity of every stored result.
COST_MODEL_VERSION = "1"
