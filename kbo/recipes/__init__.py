"""Named algorithms: posterior + confidence + rule."""

from kbo.recipes.method import Method
from kbo.recipes.registry import PRACTICAL_WIDTHS, make, names

__all__ = ["PRACTICAL_WIDTHS", "Method", "make", "names"]
