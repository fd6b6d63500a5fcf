"""Parts of benchmarks/versus.py: peers' environments and files, drivers, clients, the table."""
