"""What somebody is told who says something that cannot be."""

from collections.abc import Callable

import pytest

from unstuck import ConfigError


def refusal(call: Callable[..., object], *args: object) -> str:
    with pytest.raises(ConfigError) as caught:
        call(*args)
    return str(caught.value)
