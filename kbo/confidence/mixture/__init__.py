"""The martingale-mixture confidence bounds of Flynn & Reeb (2024).

| file | holds |
|---|---|
| ``sub_gaussian.py`` | ``SubGaussian``, bounds of functions of bounded norm; also those of other folders |
| ``bound.py`` | ``MartingaleMixture``: AMM, DMM and CMM |
| ``radius.py`` | the squared radius R^2, eq. 8 |
| ``confidence_set.py`` | the set F, Lemma 4.2, and h(a; x), eq. 13 |
| ``exact.py`` | the least h of all ridges a, Theorem 4.4 and 4.5 |
| ``ridge_search.py`` | grids of ridges, and Brent's method |
| ``least_norm.py`` | the least norm that fits the data, Cor. 4.3 |
| ``unknown_norm.py`` | ``UnknownNorm``, whose norm bound follows it |
| ``certificate.py`` | certificates of the exact bound, and the cone program |
"""
