"""The pieces of `benchmarks/http_streams.py`: a worker that computes nothing, and the clients."""
