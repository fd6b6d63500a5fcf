"""What `benchmarks/grammar.py` measures with."""
