"""Search spaces."""

from kbo.space.bounds import Bounds
from kbo.space.conditions import Condition, When
from kbo.space.constraints import Linear, Rule
from kbo.space.parameters import Choice, Fixed, Float, Int, Ordinal, Parameter
from kbo.space.space import Params, Space

__all__ = [
    "Bounds",
    "Choice",
    "Condition",
    "Fixed",
    "Float",
    "Int",
    "Linear",
    "Ordinal",
    "Parameter",
    "Params",
    "Rule",
    "Space",
    "When",
]
