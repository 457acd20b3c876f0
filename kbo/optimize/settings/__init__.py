"""Settings: the assumptions of a run. A setting fits surrogates and names the strategies of the search.

* ``setting.py``: the interface; ``choice.py``: the setting and the method of a run, with their defaults
* ``practical.py``, ``certified.py``, ``safe.py``: the settings
"""
