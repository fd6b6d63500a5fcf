"""Grammars that constrain a response: its answer, its calls, and the envelope around both.

`structure` is what clients may ask for, `envelope` and `call_rules` say where in a response it
stands, as `lark` text for llguidance; `compiler` checks and limits the result.
"""
