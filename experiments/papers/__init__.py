"""The experiments of five papers, and further studies.

``experiment``: an experiment as data. ``catalogue`` and ``command``: the papers and their commands. ``mixture``,
``sketching``, ``streaming`` (with ``streaming_uniform``) and ``chaining``: the papers.
"""
