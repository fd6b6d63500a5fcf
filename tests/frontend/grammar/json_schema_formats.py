"""The corpus of JSON schemas: formats, annotations, and what older drafts and others have."""

from __future__ import annotations

from typing import Final

from tests.frontend.grammar.json_schema_cases import Case, Keyword, refuses


def _format(
    name: str,
    valid: list[str],
    invalid: list[str],
    narrower: list[str] | None = None,
    note: str = "",
) -> Keyword:
    cases = [Case({"format": name}, [*valid, 5, None], list(invalid), list(narrower or []))]
    return Keyword(f"format: {name}", "format", cases, note)


FORMATS: Final = [
    _format(
        "date",
        ["2020-02-29", "1999-12-31", "2000-02-29"],
        [
            "2021-02-29",
            "1900-02-29",
            "2020-04-31",
            "20200101",
            "2020-13-01",
            "2020-W01",
            "2020-1-1",
        ],
    ),
    _format(
        "time",
        ["08:30:06Z", "08:30:06.283185z", "23:59:60Z", "08:30:06+00:20"],
        [
            "08:30:06",
            "24:00:00Z",
            "08:30Z",
            "22:59:60Z",
            "08:30:06-25:00",
            "08:30:06 PST",
            "08:30:06.Z",
        ],
        ["01:29:60+01:30"],
        "leap seconds in UTC alone",
    ),
    _format(
        "date-time",
        [
            "2020-01-01T00:00:00Z",
            "1985-04-12t23:20:50.52z",
            "1998-12-31T23:59:60Z",
            "2020-02-29T00:00:00-08:00",
        ],
        [
            "2021-02-29T00:00:00Z",
            "2020-01-01 00:00:00Z",
            "2020-01-01T00:00:00",
            "1998-12-31T22:59:60Z",
            "2020-01-01",
            "2020-01-01T24:00:00Z",
        ],
        ["1998-12-31T15:59:60-08:00"],
        "leap seconds in UTC alone",
    ),
    _format(
        "duration",
        ["P4DT12H30M5S", "P4Y", "PT0S", "P1M", "P2W", "P1Y2M3DT4H5M6S", "P1YT1S"],
        ["P", "PT", "P1", "4DT12H", "P1D2H", "P1YT", "P1W1D", "PT1D", "P1D1Y", "P1Y1D", "PT1H1S"],
    ),
    _format(
        "email",
        ["joe@example.com", "te~st@example.com", "te.s.t@a-b.c", "joe@[127.0.0.1]"],
        ["2962", ".a@b.c", "a.@b.c", "a..b@c.d", "joe@", "@a", "joe@a=b.com", "a@-b.c"],
        ['"joe bloggs"@example.com'],
        "without quotation marks",
    ),
    _format(
        "hostname",
        ["www.example.com", "a-b", "a" * 63, "1.2", "a--b"],
        [
            "-a",
            "a-",
            "a..b",
            "",
            "a_b",
            "a" * 64,
            "a.",
            ".a",
            "exämple.com",
            ".".join(["a" * 63] * 4),
        ],
        ["xn--4gbwdl.xn--wgbh1c"],
        "without names of other scripts",
    ),
    _format(
        "ipv4",
        ["192.168.0.1", "0.0.0.0", "255.255.255.255"],
        ["256.1.1.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.4 ", "0x7f.0.0.1", "\u0661.2.3.4"],
    ),
    _format(
        "ipv6",
        [
            "::1",
            "::",
            "abcd::",
            "1:2:3:4:5:6:7:8",
            "::42:ff:1",
            "1::2",
            "1:2:3:4:5:6:7::",
            "::2:3:4:5:6:7:8",
        ],
        [
            "12345::",
            "1::2::3",
            ":1",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9",
            "fe80::a%eth1",
            "1:2:3:4:5:6:7:8::",
        ],
        ["::ffff:192.168.0.1"],
        "without IPv4 parts",
    ),
    _format(
        "uri",
        [
            "http://foo.bar/?baz=qux#quux",
            "urn:oasis:names",
            "mailto:a@b.c",
            "ldap://[2001:db8::7]/c=GB?x",
            "http://a.b/%20",
            "file:///etc/passwd",
        ],
        [
            "//foo.bar/",
            "/abc",
            "\\\\W\\f",
            "abc",
            "http:// a",
            ":// a",
            "bar,baz:foo",
            "http://a/%zz",
            "http://a/{b}",
            "http://[::1",
            "http://[12345::]/",
            'http://a/"',
        ],
        ["http://[v1.a]/"],
        "IPv6 or a name as its host",
    ),
    _format(
        "uri-reference",
        ["http://a.b/c", "//foo.bar/", "/abc", "abc#x", "#f", "", "?q", "./a:b"],
        ["\\\\W\\f", "#a\\b", "a b", "%zz", "http://a/{b}"],
    ),
    _format(
        "uuid",
        ["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
        [
            "2eb8aa08-aa98-11ea-b4aa73b441d16380",
            "2eb8aa08aa9811eab4aa73b441d16380",
            "x",
            "2eb8aa08-aa98-11ea-b4aa-73b441d1638g",
        ],
    ),
    _format("json-pointer", ["", "/", "/a/b", "/a~1b~0c", "/é/0"], ["a", "/~", "/~2", "#/a"]),
    _format("relative-json-pointer", ["0", "1#", "12/a/b"], ["/a", "-1/a", "01", "", "0##"]),
    *(
        Keyword(f"format: {name}", "format", [Case({"format": name}, refused=name)])
        for name in (
            "idn-email",
            "idn-hostname",
            "iri",
            "iri-reference",
            "regex",
            "uri-template",
            "unknown",
            "int32",
        )
    ),
]

OTHERS: Final = [
    *(
        Keyword(name, "content", [Case({name: value, "type": "string"}, ["x"], [1])])
        for name, value in (
            ("contentEncoding", "base64"),
            ("contentMediaType", "a/b"),
            ("contentSchema", {"not": {}}),
        )
    ),
    *(
        Keyword(name, "annotations", [Case({name: value, "type": "integer"}, [1], ["x"])])
        for name, value in (
            ("title", "t"),
            ("description", "d"),
            ("default", "x"),
            ("deprecated", True),
            ("readOnly", True),
            ("writeOnly", True),
            ("examples", ["x"]),
        )
    ),
    Keyword(
        "definitions",
        "older drafts",
        [Case({"$ref": "#/definitions/a", "definitions": {"a": {"const": 1}}}, [1], [2])],
    ),
    Keyword(
        "additionalItems",
        "older drafts",
        [
            Case({"items": [{"type": "integer"}], "additionalItems": False}, [[1], []], [[1, 2]]),
            Case({"additionalItems": False}, [[1]]),
        ],
    ),
    refuses("dependencies", {"dependencies": {"a": ["b"]}}, "older drafts"),
    refuses("$recursiveRef", {"$recursiveRef": "#"}, "older drafts"),
    refuses("id", {"id": "x"}, "older drafts"),
    refuses("nullable", {"type": "string", "nullable": True}, "OpenAPI"),
    Keyword(
        "discriminator",
        "OpenAPI",
        [Case({"discriminator": {"propertyName": "k"}, "type": "integer"}, [1], ["x"])],
        "a hint beside `oneOf`",
    ),
    refuses("x-guidance", {"x-guidance": {"lenient": True}}, "others"),
    refuses("x-anything", {"x-anything": 1}, "others"),
]
