"""Between text and tokens: tokenizer, chat template, prompt preparation, output pipeline.

Knows neither HTTP nor the scheduler. `bootstrap.Frontend` is what the server and the in-process
engine hold.
"""
