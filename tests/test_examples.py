"""The examples run, and are as short as they say."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from homeward.testing import check_method

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.name)
def test_an_example_runs(script):
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_method_in_one_file_is_short_and_conforms():
    script = EXAMPLES / "nearest_mean.py"
    assert len(script.read_text().splitlines()) < 60
    sys.path.insert(0, str(EXAMPLES))
    try:
        import nearest_mean

        assert check_method(nearest_mean.NearestMean)
    finally:
        sys.path.remove(str(EXAMPLES))
    assert runpy.run_path(str(script))["NearestMean"]().pull == 10.0


def test_contributing_shows_the_example_as_it_is():
    text = (EXAMPLES.parent / "CONTRIBUTING.md").read_text()
    body = (EXAMPLES / "nearest_mean.py").read_text().split('if __name__ == "__main__":')[0].strip()
    assert body in text, "CONTRIBUTING.md shows another version of examples/nearest_mean.py"
