"""What Python runs when it starts: processes that a test starts take the same codes as the test."""

import os
import sys

if "MUTANTS_CODES" in os.environ:
    from pathlib import Path

    sys.path.append(str(Path(__file__).parent.parent))
    from hook import install

    install()
    sys.path.pop()
