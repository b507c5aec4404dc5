"""The code of docs/notebook.md runs as it stands there, on a program."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.notebook.programs import program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "notebook.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_code_of_the_page_runs() -> None:
    names: dict[str, object] = {"program": program()}
    run = [block for block in BLOCKS if "import hlo_lens" not in block and "to_" not in block]
    assert len(run) == 2
    for block in run:
        exec(block, names)
    assert names["row"]


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed")
def test_the_data_frame_of_the_page() -> None:
    (block,) = (block for block in BLOCKS if "to_pandas" in block)
    sums = eval(block, {"table": program().table("collectives")})
    assert sums.to_dict() == {"all-gather": 32, "all-reduce": 32}
