"""The command line: ``app`` has the commands, and ``examples`` what ``kbo tune`` tunes without a script.

Modules of this package have what loads PyTorch as ``Lazy`` modules, so that ``kbo --help`` does not load it.
"""
