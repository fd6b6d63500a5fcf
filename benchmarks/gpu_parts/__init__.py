"""Parts of `gpu_accumulation.py`."""
