"""The loop of ``minimize`` and ``maximize``: trials begin and end until there is a reason to stop.

* ``loop.py``: the loop; ``stopping.py``: the reasons to stop, and the errors after too many failures
* ``callbacks.py``: the functions of the user after each trial
* ``pruning.py``: the early end of trials that report bad values
"""
