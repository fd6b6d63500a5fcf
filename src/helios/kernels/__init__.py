"""The kernel catalogue as data: which operands and attributes each kernel takes."""
