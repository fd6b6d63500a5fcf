"""The string formats that a grammar can keep a text to, each as one regular expression.

A text that one of these matches has its format; some texts of a format may be missing where only
they make it hard. What isn't here is refused by name: a format is never just a remark.
"""

from __future__ import annotations

from typing import Final

# ------------------------------------------------------------ dates: RFC 3339, ISO 8601

_LONG_MONTH: Final = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT_MONTH: Final = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY: Final = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_FOURTH: Final = "(?:[02468][048]|[13579][26])"
# Years divisible by 4 that end no century, and centuries divisible by 400.
_LEAP_YEAR: Final = f"(?:[0-9]{{2}}(?:0[48]|[2468][048]|[13579][26])|{_FOURTH}00)"
_DATE: Final = f"(?:[0-9]{{4}}-(?:{_LONG_MONTH}|{_SHORT_MONTH}|{_FEBRUARY})|{_LEAP_YEAR}-02-29)"
_FRACTION: Final = r"(?:\.[0-9]+)?"
_ZONE: Final = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
# A leap second is the last of a day in UTC.
_TIME: Final = (
    f"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_FRACTION}{_ZONE}"
    f"|23:59:60{_FRACTION}(?:[Zz]|[+-]00:00))"
)
_CLOCK: Final = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS: Final = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION: Final = f"P(?:{_DAYS}(?:{_CLOCK})?|{_CLOCK}|[0-9]+W)"

# ------------------------------------------------------------ hosts: RFC 1123, 5321, 2673, 4291

_L: Final = "[0-9A-Za-z]"
_M: Final = "[0-9A-Za-z-]"
# Up to 63 characters; without hyphens in both third and fourth place, where IDNA has its say.
_LABEL: Final = f"{_L}(?:{_L}|{_M}{_L}|{_M}{_M}{_L}|{_M}(?:{_L}{_M}|-{_L}){_M}{{0,58}}{_L})?"
_HOSTNAME: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4: Final = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_G: Final = "[0-9A-Fa-f]{1,4}"
_IPV6: Final = (
    "(?:"
    + "|".join(
        [
            f"(?:{_G}:){{7}}{_G}",
            "::",
            *(f"(?:{_G}:){{{n}}}(?::{_G}){{1,{7 - n}}}" for n in range(1, 7)),
            f":(?::{_G}){{1,7}}",
            f"(?:{_G}:){{1,7}}:",
        ]
    )
    + ")"
)
_ATOM: Final = r"[0-9A-Za-z!#$%&'*+\-/=?^_`{|}~]+"
_EMAIL: Final = rf"{_ATOM}(?:\.{_ATOM})*@(?:{_HOSTNAME}|\[{_IPV4}\])"

# ------------------------------------------------------------ resources: RFC 3986, 6901

_UNIT: Final = "%[0-9A-Fa-f]{2}"
_PCHAR: Final = rf"(?:[0-9A-Za-z\-._~!$&'()*+,;=:@]|{_UNIT})"
_NO_COLON: Final = rf"(?:[0-9A-Za-z\-._~!$&'()*+,;=@]|{_UNIT})"
_AUTHORITY: Final = (
    rf"(?:(?:[0-9A-Za-z\-._~!$&'()*+,;=:]|{_UNIT})*@)?"
    rf"(?:\[{_IPV6}\]|(?:[0-9A-Za-z\-._~!$&'()*+,;=]|{_UNIT})*)(?::[0-9]*)?"
)
_PATH: Final = f"(?:/{_PCHAR}*)*"
_ROOTED: Final = f"/(?:{_PCHAR}+{_PATH})?"
_TAIL: Final = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:\#(?:{_PCHAR}|[/?])*)?"
_URI: Final = (
    rf"[A-Za-z][0-9A-Za-z+\-.]*:(?://{_AUTHORITY}{_PATH}|{_ROOTED}|{_PCHAR}+{_PATH}|){_TAIL}"
)
_RELATIVE: Final = rf"(?://{_AUTHORITY}{_PATH}|{_ROOTED}|{_NO_COLON}+{_PATH}|){_TAIL}"
_POINTER: Final = "(?s:/(?:[^~/]|~[01])*)*"

FORMATS: Final[dict[str, str]] = {
    "date": _DATE,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9][0-9]*)(?:\#|{_POINTER})",
    "time": _TIME,
    "uri": _URI,
    "uri-reference": f"(?:{_URI}|{_RELATIVE})",
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
MAY_BE_EMPTY: Final = frozenset(["json-pointer", "uri-reference"])
HOSTNAME_CHARACTERS: Final = 253
