"""Names and their modules, from which ``__init__.py`` imports them when they are first used."""

from .client import of_client as of_client
from .client import of_client_file as of_client_file
from .history import History as History
from .storage import of_storage as of_storage
from .storage import of_study as of_study
from .table import of_table as of_table
from .table import of_table_file as of_table_file
