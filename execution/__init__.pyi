from .adapters import (
    as_checkpoint_policy as as_checkpoint_policy,
    as_knapsack_solver as as_knapsack_solver,
)
from .compiling import compile as compile
from .errors import (
    DifferentModel as DifferentModel,
    ExecutionFailed as ExecutionFailed,
)
