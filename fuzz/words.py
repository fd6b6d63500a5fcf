"""Words of the languages that targets read as text. The driver puts them into its inputs, since
by single bytes it would hardly find any."""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = (
    *("{{ ", " }}", "{% ", " %}", "{%- ", " -%}", "{# ", " #}", "{{ '{{' }}"),
    *("{% for m in messages %}", "{% endfor %}", "{% else %}", "{% if ", "{% elif ", "{% endif %}"),
    *("{% set ", "{% endset %}", "{% macro f(a) %}", "{% endmacro %}", "{% call(x) f(1) %}"),
    *("{% endcall %}", "{% filter upper %}", "{% endfilter %}", "{% generation %}", "{% raw %}"),
    *("{% endraw %}", "{% with a = 1 %}", "{% endwith %}", "{% block b %}", "{% endblock %}"),
    *("{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as x %}", "{% do x.append(1) %}"),
    *("{% break %}", "{% continue %}", "{% autoescape true %}", "{% trans %}", "{% debug %}"),
    *("messages", "m.content", "m['role']", "loop.index0", "loop.last", "loop.cycle(1, 2)"),
    *("loop(m)", " recursive", "caller()", "varargs", "kwargs", "self", "namespace(a=1)", "cycler"),
    *("joiner()", "dict(a=1)", "range(9)", "range(10 ** 9)", "lipsum()", "raise_exception('x')"),
    *("strftime_now('%d')", "add_generation_prompt", "bos_token", "tools", "undefined", "none"),
    *(" is defined", " is not none", " is string", " is mapping", " is iterable", " in ", " not "),
    *(" and ", " or ", " if ", " else ", " ~ ", " ** ", " // ", " % ", " * ", "[::-1]", "[1:]"),
    *(".append(1)", ".items()", ".split(',')", ".strip()", ".format(1)", ".join([1])", ".pop()"),
    *(".startswith('a')", ".replace('a', 'b')", ".encode()", ".__class__", ".__mro__", "['a']"),
    *("|trim", "|upper", "|length", "|join(',')", "|tojson(indent=4)", "|map(attribute='role')"),
    *("|map('upper')", "|select('string')", "|selectattr('role', 'equalto', 'user')", "|list"),
    *("|rejectattr('x')", "|groupby('role')", "|sort", "|unique", "|batch(2)", "|slice(2)"),
    *("|sum", "|first", "|last", "|random", "|reverse", "|center(99)", "|indent(4)", "|replace("),
    *("|wordwrap(2)", "|truncate(2)", "|format(1)", "|string", "|int", "|float", "|default(1)"),
    *("|items", "|dictsort", "|pprint", "|xmlattr", "|urlize", "|safe", "|escape", "|attr('a')"),
)
HTTP: Final = (
    *("http://", "https://", "private", "mirror", "[::1]", "10.0.0.1", "127.0.0.1", ":80", ":443"),
    *(":65536", "user@", "/../", "?", "#", "%2e", "%0d%0a", "xn--", "0x7f.1", "2130706433", "..."),
    *("HTTP/1.1 ", "HTTP/1.0 ", "HTTP/2 ", "100 Continue", "103 Early Hints", "200 OK", "204 No"),
    *("206 Partial Content", "301 Moved", "302 Found", "303 See Other", "304 Not Modified"),
    *("307 T", "308 P", "403 F", "404 N", "408 T", "416 R", "429 T", "500 I", "502 B", "503 B"),
    *(
        "\r\n",
        "\r\n\r\n",
        "\n\n",
        "\r\nLocation: ",
        "\r\nContent-Length: 8",
        "\r\nContent-Length: ",
    ),
    *("\r\nContent-Length: ", "\r\nContent-Range: bytes 16-23/4096"),
    *("\r\nContent-Range: bytes ", "/*", "*/4096", "16-24/"),
    *("\r\nTransfer-Encoding: chunked", "\r\nContent-Encoding: gzip", "\r\nRetry-After: 5"),
    *("\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT", "\r\nConnection: close", "\r\nETag: "),
    *("\r\nContent-Type: multipart/byteranges; boundary=x", "\r\n folded", "8\r\n01234567\r\n"),
    *("0\r\n\r\n", "ffffffffffffffff\r\n", "8;x=y\r\n", "-1", "18446744073709551616", "01234567"),
)


def dictionary(words: tuple[str, ...]) -> str:
    """Words in the form of libFuzzer's dictionaries, which takes ASCII without quotes only."""
    return "".join(f'"{"".join(map(_escaped, word))}"\n' for word in words)


def _escaped(character: str) -> str:
    plain = " " <= character <= "~" and character not in '"\\'
    return character if plain else f"\\x{ord(character):02x}"
