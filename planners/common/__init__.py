"""What several planners share: fitting to the budget, link time, order of transfers."""
