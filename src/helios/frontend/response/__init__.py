"""Reading a model's response: reasoning, content and tool calls out of one stream of text.

`parser` is the way in. `marked_text` turns tokens into the text that parsers read, `deltas` is
what comes out, `arguments` and `typing` make JSON of what a call says, `matching` finds markers
in a growing text; there is one small module a syntax.
"""
