"""The command line.

``app``: all commands, among them report and audit. ``options``: options that several commands share. ``script`` and
``examples``: the objective that is tuned. ``tune``: runs of a script, and confirmations. ``ask`` and ``tell``:
experiments that people carry out, with ``by_hand``. ``journal``: work on journals.

``kbo --help`` must be quick, so modules that load PyTorch are ``Lazy`` here.
"""
