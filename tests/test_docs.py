"""Every Python block of the README and of the pages for users runs as it is printed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/howto.md", "docs/integrations.md"])
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 3
    namespace: dict = {"__name__": "__main__"}  # or Ray would look for its functions in a module
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)
