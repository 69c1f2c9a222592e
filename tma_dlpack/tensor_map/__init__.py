"""`TensorMap`: 128 bytes, what they describe, and the forms that launchers take."""
