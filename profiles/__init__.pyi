from .catalogue import (
    DEFAULT_HARDWARE as DEFAULT_HARDWARE,
    find_hardware as find_hardware,
    hardware_names as hardware_names,
)
from .generators.prices import Prices as Prices
from .generators.random_dag import (
    deep_chain_profile as deep_chain_profile,
    layered_profile as layered_profile,
    random_problem as random_problem,
    random_profile as random_profile,
)
from .generators.transformer import (
    TransformerModel as TransformerModel,
    transformer_profile as transformer_profile,
)
from .importers import import_profile as import_profile
from .importers.table import from_frame as from_frame
from .library import (
    find_profile as find_profile,
    library_entries as library_entries,
    profile_hardware as profile_hardware,
    profile_names as profile_names,
)
from .overlap import hideable_fraction as hideable_fraction
from .plots import (
    profile_figure as profile_figure,
    write_profile_plot as write_profile_plot,
)
from .summary import (
    ProfileSummary as ProfileSummary,
    summarise as summarise,
)
