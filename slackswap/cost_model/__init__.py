"""The referee: one cost model, as a readable reference and as a compiled kernel."""
