"""Reports: a run as one HTML page, and its parts.

``write`` makes the page, and ``plot`` figures of it. ``history`` replays a run, and the functions named ``draw_...``
draw on given axes, for example in a notebook::

    figure, axes = kbo.report.picture()
    kbo.report.draw_band(axes, result, "learning_rate")
    kbo.report.finish(figure).savefig("band.png")

Names, listed in ``__init__.pyi``, are imported when they are first used: those that draw need the extra "cli".
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
