"""Search spaces, and their encoding for the kernel.

``parameters``: ranges and options of one parameter. ``bounds``: from what a user writes to parameters and conditions.
``constraints``: limits on weighted sums, and functions of params. ``table``: candidates in a DataFrame. ``files``:
spaces in JSON and YAML. ``program``: linear limits as a mixed-integer program. ``space``: all of these together, with
the unit cube and the features. ``feasible``: random points that satisfy the constraints.
"""

from kbo.space.bounds import Bounds, Condition, When
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
