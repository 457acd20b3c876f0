"""Workers: they call the objective in this process, in threads, in processes or on a cluster.

``call``: the interface, and one call with its outcome. ``in_process``: calls in this process, one at a time or in
threads. ``processes``: calls in worker processes, and the engine for a number of workers. ``child``: the program of a
worker process. ``ray``: calls on a cluster. ``remote``: the common part of ``processes`` and ``ray``.

This package imports nothing here: worker processes import it first, and must start quickly.
"""
