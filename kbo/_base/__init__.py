"""Basic tools, independent of bounds and optimisation.

Arguments: ``checks`` (their values), ``arguments`` (their names) and ``devices`` (of tensors). Numbers: ``linalg``
(Cholesky factors), ``quasirandom`` (Sobol points). Objects: ``stateful`` (forks), ``read_only`` (attributes), ``locks``
(threads and forks). The program around kbo: ``isolation`` and ``program_state`` (of PyTorch and NumPy), ``lazy`` and
``extras`` (imports), ``files``, ``streams`` (output), ``terminal`` (texts and bars), ``plotting`` (figures).
"""
