from .analysis.claim_rules import judge_claims as judge_claims
from .analysis.claims import (
    Claim as Claim,
    Finding as Finding,
    Judged as Judged,
    Verdict as Verdict,
)
from .analysis.frame import (
    COLUMNS as COLUMNS,
    export as export,
    latest as latest,
    load_facts as load_facts,
    load_results as load_results,
)
from .analysis.statistics import (
    bootstrap_interval as bootstrap_interval,
    compare_planners as compare_planners,
    non_monotone_steps as non_monotone_steps,
    performance_profiles as performance_profiles,
    ranking as ranking,
    shifted_geometric_mean as shifted_geometric_mean,
)
from .check.kit import (
    CheckFailed as CheckFailed,
    CheckOutcome as CheckOutcome,
    CheckReport as CheckReport,
    CheckStatus as CheckStatus,
    check_names as check_names,
    check_planner as check_planner,
    run_checks as run_checks,
)
from .comparison.gantt import gantt_figure as gantt_figure
from .comparison.plans import (
    PlanComparison as PlanComparison,
    compare as compare,
)
from .comparison.stalls import stalls_by_tensor as stalls_by_tensor
from .comparison.trace import (
    chrome_trace as chrome_trace,
    write_trace as write_trace,
)
from .report.figures import (
    action_figure as action_figure,
    budget_figure as budget_figure,
    gap_figure as gap_figure,
    profile_figure as profile_figure,
    ranking_figure as ranking_figure,
    search_figure as search_figure,
    time_figure as time_figure,
)
from .report.page import write_report as write_report
from .run.finished import (
    Finished as Finished,
    load_finished as load_finished,
)
from .run.session import run_suite as run_suite
from .run.store import Store as Store
from .run.suite import (
    Suite as Suite,
    load_suite as load_suite,
    suite_names as suite_names,
)
