"""Figures, notebook rendering and the HTML report."""
