"""The HTTP process: an OpenAI-compatible API over one model worker.

`server.Server` runs it; `app.build_app` makes the ASGI application alone.
"""
