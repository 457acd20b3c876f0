"""The loop of ``minimize`` and ``maximize``: trials begin and end until there is a reason to stop.

* ``loop.py``: the loop; ``stopping.py``: the reasons to stop; ``failures.py``: trials that failed
* ``callbacks.py``: the functions of the user after each trial; ``progress.py``: the progress bar
* ``pruning/``: the early end of trials that report bad values
"""
