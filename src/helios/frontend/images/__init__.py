"""Images in prompts: bytes to pixels, pixels to patches, patches to a prompt's places.

`pixels` decodes what a client sent, `smart_resize` is an image preparation, `three_rows` an image
layout; which of each a core uses its contract says.
"""
