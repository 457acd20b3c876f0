"""Public names and their modules, from which ``__init__.py`` imports them when they are first used."""

from .figures import Importance as Importance
from .figures import Slice as Slice
from .figures import draw_band as draw_band
from .figures import draw_contour as draw_contour
from .figures import draw_curves as draw_curves
from .figures import draw_history as draw_history
from .figures import draw_importance as draw_importance
from .figures import draw_limit as draw_limit
from .figures import draw_miscoverage as draw_miscoverage
from .figures import finish as finish
from .figures import importance as importance
from .figures import picture as picture
from .figures import slice_of as slice_of
from .live import Live as Live
from .page import write as write
from .plots import plot as plot
from .record import Record as Record
from .replay import Moment as Moment
from .replay import history as history
from .replay import miscoverage as miscoverage
