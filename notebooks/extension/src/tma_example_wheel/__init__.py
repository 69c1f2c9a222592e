"""The operator of the wheel in Python: its library, its fake kernel, its gradient."""

from pathlib import Path

import torch

__all__ = ["doubled"]

(_library,) = Path(__file__).parent.glob("libtma_example.so")
torch.ops.load_library(str(_library))
doubled = torch.ops.tma_example_wheel.doubled


@torch.library.register_fake("tma_example_wheel::doubled")
def _(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor like the result: all that torch.compile needs while it traces."""
    return x.new_empty(x.shape)


torch.library.register_autograd(
    "tma_example_wheel::doubled", lambda context, gradient: 2 * gradient
)
