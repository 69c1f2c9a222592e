"""Who encodes, and whether the bytes serve again: a driver that agrees, one that does not."""

import pytest
from strategies import tiled, view

from tma_dlpack.dlpack import Device
from tma_dlpack.encoding import bits
from tma_dlpack.make import encode
from tma_dlpack.rules.parse import make_case
from tma_dlpack.types.enums import DLDeviceType
from tma_dlpack.types.target import TARGETS

CUDA, MANAGED = Device(DLDeviceType.kDLCUDA, 0), Device(DLDeviceType.kDLCUDAManaged, 0)


@pytest.fixture
def shown_driver(monkeypatch):
    """Stand in for a driver with an sm_90 GPU that flips `bit` of what the model encodes."""

    def show(bit=None):
        def by_driver(arguments, address, device_id):
            word = int.from_bytes(bits.encode(arguments, address), "little")
            word ^= 0 if bit is None else 1 << bit
            return word.to_bytes(128, "little")

        monkeypatch.setattr(encode.driver, "is_available", lambda: True)
        monkeypatch.setattr(encode.driver, "device_target", lambda device_id: TARGETS["sm_90"])
        monkeypatch.setattr(encode.driver, "pointer_device", lambda address: 0)
        monkeypatch.setattr(encode.driver, "encode", by_driver)

    return show


@pytest.mark.parametrize(
    ("device", "bit", "reusable"),
    [(CUDA, None, True), (CUDA, 85, False), (MANAGED, None, False)],
    ids=["the driver agrees", "the driver differs in one bit", "managed memory"],
)
def test_a_layout_serves_again_only_where_driver_and_model_agree(
    device, bit, reusable, shown_driver
):
    shown_driver(bit)
    x = view((64, 64), device=device)
    case = make_case("tiled", x.at(0), x.address, tiled((16, 16)), TARGETS["sm_90"], False)
    template = encode.encode_for(case)
    assert (template.encoder, template.reusable) == ("driver", reusable)
