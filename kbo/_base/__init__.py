"""Basic tools, which know nothing of bounds and optimisation.

Arguments and numbers: ``checks``, ``devices``, ``linalg``, ``quasirandom``. Objects: ``stateful``
(forks), ``read_only``, ``locks``. The program around kbo: ``isolation`` and ``settings`` (of PyTorch
and NumPy), ``lazy`` and ``extras`` (imports), ``files``, ``streams``, ``terminal``, ``plotting``.
"""
