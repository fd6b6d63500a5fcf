"""Hostile input: targets, structure-aware mutations, and a coverage-guided driver.

Used by `python -m fuzz` and by tests/hostile; nothing here is part of the product.
"""
