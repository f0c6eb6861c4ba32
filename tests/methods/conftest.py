"""The helpers of this folder, and `benchmarks`, can be imported by its tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(p) for p in (HERE, HERE.parents[1]) if str(p) not in sys.path]
