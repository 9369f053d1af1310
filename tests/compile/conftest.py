from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from fagen.compile import cache

sys.path.insert(0, str(Path(__file__).parent))  # tiny.py, which spawned processes import too


@pytest.fixture(autouse=True)
def a_process_that_has_not_warned(monkeypatch):
    monkeypatch.setattr(cache, "_warn_once", threading.Lock())
