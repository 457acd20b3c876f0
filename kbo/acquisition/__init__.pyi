"""Public names and their modules, from which ``__init__.py`` imports them when they are first used."""

from . import input_constructors as input_constructors
from .constrained import ConstrainedKernelUCB as ConstrainedKernelUCB
from .safe import SafeExpander as SafeExpander
from .safe import SafeUCB as SafeUCB
from .safe import optimize_safely as optimize_safely
from .thompson import InflatedPosteriorSampling as InflatedPosteriorSampling
from .thompson import InflatedThompsonSampling as InflatedThompsonSampling
from .ucb import AMMUCB as AMMUCB
from .ucb import CMMUCB as CMMUCB
from .ucb import DMMUCB as DMMUCB
from .ucb import ChainingUCB as ChainingUCB
from .ucb import KernelUCB as KernelUCB
