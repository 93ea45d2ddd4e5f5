"""What all tests share."""

import pytest

pytest.register_assert_rewrite("unstuck.testing.conformance")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
