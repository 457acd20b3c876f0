"""Public names and their modules, from which ``__init__.py`` imports them when they are first used."""

from .figures.axes import finish as finish
from .figures.axes import picture as picture
from .figures.importance import draw_importance as draw_importance
from .figures.importance import importance as importance
from .figures.slices import Slice as Slice
from .figures.slices import draw_band as draw_band
from .figures.slices import draw_contour as draw_contour
from .figures.slices import slice_of as slice_of
from .figures.trials import draw_curves as draw_curves
from .figures.trials import draw_history as draw_history
from .figures.trials import draw_limit as draw_limit
from .live import Live as Live
from .page import write as write
from .plots import plot as plot
from .record import Record as Record
from .replay import Moment as Moment
from .replay import history as history
