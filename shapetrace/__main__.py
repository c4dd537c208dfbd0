"""python -m shapetrace"""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # the current folder, whose files are not to be taken for libraries

from shapetrace.cli import launch

launch(prog_name="shapetrace")
