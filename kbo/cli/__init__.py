"""The command line.

``app``: all commands. ``options``: options that several commands share. ``script`` and ``examples``: the objective that
is tuned. ``tune`` and ``confirm``: runs of a script. ``laboratory``, ``ask`` and ``tell``: experiments that people
carry out. ``views``: report and audit. ``journal``: work on journals.

``kbo --help`` must be quick, so modules that load PyTorch are ``Lazy`` here.
"""
