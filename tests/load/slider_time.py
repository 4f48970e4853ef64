"""How long a slider of a teaching page takes to redraw it: processor time of the server for one whole rerun. The goal is 100 ms.

    python tests/load/slider_time.py

Best and median of several moves on a machine that should be quiet; a benchmark, not a test.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SHELL = str(ROOT / "specdec" / "ui" / "shell.py")
GOAL = 0.100  # seconds

MOVES = [
    ("speedup", "length", "alpha"),
    ("speedup", "balance", "cost"),
    ("speedup", "map", "cost"),
    ("speedup", "costs", "alpha"),
    ("speedup", "replay", "alpha"),
    ("speedup", "text", "alpha"),
    ("residual", "parts", "p0"),
    ("residual", "draws", "q1"),
    ("residual", "mistakes", "p2"),
    ("limits", "poor", "alpha"),
    ("limits", "costly", "cost"),
    ("limits", "busy", "alpha"),
]


def redraw(page: str, view: str, slider: str) -> list[float]:
    """Seconds of each of seven moves of `slider`."""
    at = AppTest.from_file(SHELL, default_timeout=60)
    at.query_params["show"] = view
    at.switch_page(str(ROOT / "pages" / f"{page}.py"))
    at.run()
    spent = []
    for value in (0.31, 0.42, 0.53, 0.33, 0.44, 0.55, 0.35):
        begun = time.process_time()
        at.slider(key=slider).set_value(value).run()
        spent.append(time.process_time() - begun)
        if at.exception:
            raise SystemExit(f"{page}, {view}: {at.exception[0].message}")
    return spent


def main() -> int:
    late = 0
    for page, view, slider in MOVES:
        spent = redraw(page, view, slider)
        late += min(spent) > GOAL
        print(f"{page:9} {view:9} {slider:6} best {1000 * min(spent):4.0f} ms, median {1000 * statistics.median(spent):4.0f} ms")
    print(f"{len(MOVES) - late} of {len(MOVES)} within {1000 * GOAL:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
