"""Martingale-mixture confidence sequences: AMM, DMM and exact CMM bounds."""
