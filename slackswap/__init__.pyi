__version__: str

from .bound import (
    Bound as Bound,
    BoundMethod as BoundMethod,
    certified_gap as certified_gap,
)
from .cost_model.engine import (
    simulate as simulate,
    simulate_many as simulate_many,
)
from .errors import (
    BoundViolated as BoundViolated,
    Infeasible as Infeasible,
    InvalidBudget as InvalidBudget,
    InvalidFile as InvalidFile,
    InvalidHardware as InvalidHardware,
    InvalidPlan as InvalidPlan,
    InvalidPlanner as InvalidPlanner,
    InvalidProfile as InvalidProfile,
    Skipped as Skipped,
    SlackSwapError as SlackSwapError,
    SlackSwapWarning as SlackSwapWarning,
    SolverFailed as SolverFailed,
    UnknownName as UnknownName,
)
from .hardware import Hardware as Hardware
from .plan import (
    Plan as Plan,
    PlannerInfo as PlannerInfo,
)
from .planner import (
    Capabilities as Capabilities,
    Planner as Planner,
    Report as Report,
)
from .problem import Problem as Problem
from .profile import (
    Action as Action,
    BackwardOp as BackwardOp,
    ForwardOp as ForwardOp,
    Profile as Profile,
    Tensor as Tensor,
)
from .profiles.library import (
    load_hardware as load_hardware,
    load_profile as load_profile,
)
from .registry import (
    planner_names as planner_names,
    register as register,
    resolve_planner as resolve_planner,
    unregister as unregister,
)
from .result import (
    Evaluation as Evaluation,
    Event as Event,
    Infeasibility as Infeasibility,
)
from .solving import (
    Solution as Solution,
    solve as solve,
)
from .status import Status as Status
