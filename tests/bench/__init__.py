"""Benchmarks against peers: ``python tests/bench call``, and so on (see ``__main__.py``)."""
