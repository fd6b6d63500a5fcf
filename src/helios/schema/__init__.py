"""Generated modules of schema/*.proto; schema/generate.sh writes them."""
