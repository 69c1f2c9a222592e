"""The operator of the wheel, with its fake kernel and its gradient."""

from pathlib import Path

import torch

__all__ = ["doubled"]

# Loading the library registers torch.ops.tma_example_wheel.doubled.
(_library,) = Path(__file__).parent.glob("libtma_example.so")
torch.ops.load_library(str(_library))
doubled = torch.ops.tma_example_wheel.doubled


@torch.library.register_fake("tma_example_wheel::doubled")
def _(x: torch.Tensor) -> torch.Tensor:
    """Return an empty tensor like the result, which torch.compile uses while it traces."""
    return x.new_empty(x.shape)


torch.library.register_autograd(
    "tma_example_wheel::doubled", lambda context, gradient: 2 * gradient
)
