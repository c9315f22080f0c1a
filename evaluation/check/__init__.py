"""The check kit for planners, and the template they start from."""
