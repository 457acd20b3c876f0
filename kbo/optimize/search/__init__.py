"""The search for one point: a space or a part of it, and the maximisation of a score over it.

* ``search.py``: ``Search``; ``subspace.py``: the part of the space that it may use
* ``bounds.py``: points with the largest upper or lower bounds
* ``options.py``: options of choices that have had few trials, or only failures
"""
