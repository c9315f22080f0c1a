"""Templates of the HTML report: markup, style and script."""
