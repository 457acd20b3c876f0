"""The laboratory of kbo: experiments of papers, test problems, comparisons of tuners and measurements of speed.

It is beside the package ``kbo``, which never imports it, and is run from the root of the source code:

    python -m experiments.papers.mixture --table 1    an experiment of a paper; ``experiments.papers`` lists them
    python -m experiments.bandits rkhs -m dmm-ucb     methods on bandit problems, by their regret
    python -m experiments.tuning --suite bbob         kbo and other tuners on a suite of problems
    python -m experiments.bench                       speed, as ratios
    python -m experiments.guarantees.fronts 100       how often statements of kbo are right

``problems`` has the problems, ``sweep`` runs many independent pieces of work, of which the experiments consist, and
``output`` makes tables and pictures of their results.
"""
