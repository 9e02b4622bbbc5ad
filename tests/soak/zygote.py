"""The process that makes the ranks of a soak: that of the tests of faults, whose ranks do what `rank.py` says."""

import subprocess
import sys

from tests.faults import job
from tests.faults.zygote import become, serve
from tests.soak import rank


class Zygote(job.Zygote):
    """Makes ranks quickly."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.soak.zygote"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=job.ROOT, env=job.environment(), stdin=pipe, stdout=pipe, text=True
        )


if __name__ == "__main__":
    task = serve()
    if task is not None:
        become(task)
        rank.run(*task["args"])
