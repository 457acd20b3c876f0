"""The record of a run, without models: events, the journal, and the trials that follow from them.

* ``run.py``: ``Run``, the trials and their journal; ``guard.py``: its lock, and the repair after an interrupt
* ``events.py``: the events, as lines; ``journal.py``: the file of these lines; ``journal_file.py``: what it holds
* ``trials.py``: the trials that events describe; ``outcome.py``: what an objective returned
* ``table.py``: trials as a table; ``given_table.py``: tables with trials, as users give them
"""
