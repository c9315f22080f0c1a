"""From stored results to tables, statistics and judged claims."""
