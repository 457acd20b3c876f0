"""The laboratory of kbo: experiments of papers, test problems, comparisons of tuners and measurements of speed.

The package ``kbo`` never imports it. It is run from the root of the source code:

    python -m experiments.papers.mixture --table 1    an experiment of a paper; ``experiments.papers`` lists them
    python -m experiments.bandits rkhs -m dmm-ucb     methods on bandit problems, by their regret
    python -m experiments.tuning --suite bbob         kbo and other tuners on a suite of problems
    python -m experiments.bench                       speed, as ratios
    python -m experiments.guarantees.fronts 100       how often statements of kbo are right

An experiment consists of many independent pieces of work, called cells. ``problems`` has the problems, ``sweep`` runs
the cells, and ``output`` makes tables and pictures of the results.
"""
