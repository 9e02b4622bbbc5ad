"""Tools of the system that some tests need, which a Debian package brings."""

import os
import shutil

import pytest


def find_tool(name: str, package: str) -> str:
    """Return the path of a command; without it the test is skipped, or fails where CI=true."""
    path = shutil.which(name)
    if path is not None:
        return path
    reason = f"{name} is not installed: it comes with the Debian package {package}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
