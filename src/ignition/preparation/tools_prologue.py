"""A beginning for chat templates that show no tools: afterwards any of them does.

It makes other messages of a conversation with tools: their definitions stand in a system message,
calls are tagged JSON in their message's text, and results are a user's message. What follows it is
the checkpoint's own template, which sees only roles and texts that it knows. A conversation without
tools, calls and results is left as it is.
"""

from __future__ import annotations

from typing import Final

_TEXT: Final = """\
{#- Shows tools, calls and results, which the template below doesn't. -#}
{%- set told = namespace(messages=[], system='', results='', needed=false) -%}
{%- if tools -%}
  {%- set told.needed = true -%}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'tool' or message.tool_calls -%}
    {%- set told.needed = true -%}
  {%- endif -%}
{%- endfor -%}
{%- if told.needed -%}
  {%- if messages and messages[0].role == 'system' -%}
    {%- set content = messages[0].content -%}
    {%- set told.system = content if content is string
      else content | map(attribute='text') | join('\\n') -%}
  {%- endif -%}
  {%- if tools -%}
    {%- if told.system -%}
      {%- set told.system = told.system ~ '\\n\\n' -%}
    {%- endif -%}
    {%- set told.system = told.system ~ 'You may call these tools, one JSON object a line:' -%}
    {%- for tool in tools -%}
      {%- set told.system = told.system ~ '\\n' ~ ((tool.function or tool) | tojson) -%}
    {%- endfor -%}
    {%- set told.system = told.system ~ '\\nTo call one, answer in this form:\\n<tool_call>\\n'
      ~ '{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}\\n</tool_call>\\n'
      ~ 'When a tool has given its result, answer in a sentence.' -%}
  {%- endif -%}
  {%- if told.system -%}
    {%- set told.messages = [{'role': 'system', 'content': told.system}] -%}
  {%- endif -%}
  {%- for message in messages -%}
    {%- if message.role == 'tool' -%}
      {%- if told.results -%}
        {%- set told.results = told.results ~ '\\n' -%}
      {%- endif -%}
      {%- set content = message.content -%}
      {%- set told.results = told.results ~ '<tool_response>\\n'
        ~ (content if content is string else content | map(attribute='text') | join('\\n'))
        ~ '\\n</tool_response>' -%}
    {%- endif -%}
    {%- if told.results and (message.role != 'tool' or loop.last) -%}
      {%- set told.messages = told.messages + [{'role': 'user', 'content': told.results}] -%}
      {%- set told.results = '' -%}
    {%- endif -%}
    {%- if message.role == 'system' and loop.first -%}
    {%- elif message.tool_calls -%}
      {%- set content = message.content -%}
      {%- set said = namespace(
        text=content if content is string else content | map(attribute='text') | join('\\n')) -%}
      {%- for call in message.tool_calls -%}
        {%- if said.text -%}
          {%- set said.text = said.text ~ '\\n' -%}
        {%- endif -%}
        {%- set said.text = said.text ~ '<tool_call>\\n{"name": ' ~ (call.function.name | tojson)
          ~ ', "arguments": ' ~ (call.function.arguments | tojson) ~ '}\\n</tool_call>' -%}
      {%- endfor -%}
      {%- set told.messages = told.messages
        + [{'role': message.role, 'content': said.text}] -%}
    {%- elif message.role != 'tool' -%}
      {%- set told.messages = told.messages + [message] -%}
    {%- endif -%}
  {%- endfor -%}
{%- endif -%}
{%- set messages = told.messages if told.needed else messages %}
"""


def before(template: str) -> str:
    """The template with the prologue in front, which adds no text of its own: the line break that
    ends it belongs to its last tag, and what follows begins a line as it did."""
    return _TEXT + template
