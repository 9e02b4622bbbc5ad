"""What all tests share: how many cases hypothesis generates, and the tools some tests compare with."""

import os
import shutil

import pytest
from hypothesis import settings

settings.register_profile("default", max_examples=60, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("long", max_examples=500, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("SHARDWISE_TEST_PROFILE", "default"))


@pytest.fixture(scope="session")
def mlir_opt() -> str:
    """The path of `mlir-opt-19`; without it the test is skipped, or fails where CI=true."""
    path = shutil.which("mlir-opt-19")
    if path is not None:
        return path
    reason = "mlir-opt-19 is not installed: it comes with the Debian package mlir-19-tools"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
