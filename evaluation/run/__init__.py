"""Running suites: cells, workers, the store, and what a cell is made of."""
