"""The driver's arguments, and the 128 bytes that they become."""
