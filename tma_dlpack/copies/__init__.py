"""Copies of tiles, in NumPy (the simulator) or by the hardware."""
