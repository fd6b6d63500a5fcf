"""The pieces of `benchmarks/soak.py`: requests, clients of every temper, and the books."""
