from .bounds import (
    ClassCeilings as ClassCeilings,
    class_ceilings as class_ceilings,
    lower_bound as lower_bound,
)
from .enumeration import Enumerate as Enumerate
from .feasibility import (
    LeastBudget as LeastBudget,
    least_budget as least_budget,
)
from .milp_planner import MilpPlanner as MilpPlanner
