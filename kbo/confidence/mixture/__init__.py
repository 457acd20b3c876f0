"""The martingale-mixture confidence bounds of Flynn & Reeb (2024).

| file | holds |
|---|---|
| ``sub_gaussian.py`` | ``SubGaussian``, the base of bounds for a known norm, also in other folders |
| ``bound.py`` | ``MartingaleMixture``: AMM, DMM and CMM |
| ``radius.py`` | the squared radius R^2, eq. 8 |
| ``confidence_set.py`` | the set F, Lemma 4.2, and h(a; x), eq. 13 |
| ``exact.py`` | the minimum of h over all ridges a, Theorem 4.4 and 4.5 |
| ``ridge_search.py`` | grids of ridges, and Brent's method |
| ``least_norm.py`` | the least norm of a function that fits the data, Cor. 4.3 |
| ``unknown_norm.py`` | ``UnknownNorm``, with a norm bound that follows the least norm |
| ``certificate.py`` | certificates of the exact bound, and the paper's cone program |
"""
