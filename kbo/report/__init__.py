"""Reports: a run as sentences, figures or one HTML page.

``write`` makes the page, ``plot`` some of its figures, and ``history`` replays a run. The functions ``draw_...`` draw
on given axes, for example in a notebook::

    figure, axes = kbo.report.picture()
    kbo.report.draw_band(axes, result, "learning_rate")
    kbo.report.finish(figure).savefig("band.png")

``record``: a run as reports read it, rebuilt from its ``header``. ``replay``: its bounds after each trial. ``summary``,
``advice`` and ``captions``: sentences. ``figures`` and ``plots``: figures. ``page``, ``rendering`` and ``live``: the
page. ``audit``: trials of other tools, read by ``imported_study`` (Optuna, Ax) and ``imported_table``.

The public names are in ``__init__.pyi``. Each is imported when it is first used; those that draw need the extra "cli".
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
