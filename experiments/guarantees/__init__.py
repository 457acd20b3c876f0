"""Tables of the pages about guarantees; ``python -m experiments.guarantees.NAME`` prints one.

Functions and noise are known here, so every statement of kbo is compared with the truth.
"""
