"""Workers: they call the objective in this process, in threads, in processes or on a cluster.

``engine``: the interface. ``choice``: the engine for a number of workers. ``call``: one call and its outcome.
``in_process`` and ``threads``: calls in this process. ``remote``: the common part of ``processes`` and ``ray``.
``child``: the program of a worker process.

This package imports nothing here: worker processes import it first, and must start quickly.
"""
