from typing import Any, Callable, NamedTuple
class Operation(NamedTuple):
    run: Callable[..., Any]
    destinations: int = 0
    pauses: bool = False
    needs_warp: bool = False
    register_block: bool = False
def operation(*prefixes):
    return lambda f: f
