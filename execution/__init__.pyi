from .compiling import compile as compile
from .errors import (
    DifferentModel as DifferentModel,
    ExecutionFailed as ExecutionFailed,
)
