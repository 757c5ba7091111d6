"""Importing this makes the modules of the transport's benchmark importable by name.

Its own processes find them beside their script.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "bench" / "transport"))
