"""What the tests of this folder share, and `benchmarks`, can be imported here."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(p) for p in (HERE, HERE.parents[1]) if str(p) not in sys.path]
