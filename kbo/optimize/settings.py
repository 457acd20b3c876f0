"""The two ways to run: certified, where everything a bound needs is given, and practical, where it is guessed."""

from __future__ import annotations

from kbo.optimize.certified import Certified
from kbo.optimize.practical import Practical

Settings = Certified | Practical
