"""redact(): keep secrets and terminal tricks out of what is stored, logged or shown."""

from __future__ import annotations

import re

HIDDEN = "[redacted]"
LONGEST_KEY = 16 * 1024  # characters of a private key in PEM form


def _compiled(pattern: str, instead: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.IGNORECASE), instead


_NAME = (
    r"(?:password|passwd|pwd|secret|token|api[_-]?key|authorization|cookie|private[_-]?key|dsn)"
    r"(?:[_-](?:access|key|base|id)){0,3}"
)
_QUOTED = r'"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'"
_SHAPES = (
    # Key material first: nothing inside it may be taken for something smaller.
    _compiled(
        rf"-----BEGIN [A-Z ]{{0,40}}PRIVATE KEY-----(?:[^-]|-(?!----)){{0,{LONGEST_KEY}}}(?:-----END [A-Z ]{{0,40}}PRIVATE KEY-----)?",
        HIDDEN,
    ),
    # The password of an address reaches to the last @ before its path; a slash that is not written as %2F is part of it,
    # unless what is before the slash is a port.
    _compiled(r"([a-z][a-z0-9+.-]{1,30}://[^\s:/]{0,300}):[^\s/]{1,2000}@", rf"\1:{HIDDEN}@"),
    _compiled(
        r"([a-z][a-z0-9+.-]{1,30}://(?:[^\s:/@]{1,300}(?=:(?!\d{0,5}/)))?):(?!\[redacted\]@)[^\s'\"]{1,2000}@",
        rf"\1:{HIDDEN}@",
    ),
    # Whole header lines: every scheme of an authorization, every part of a cookie.
    _compiled(r"\b((?:proxy-)?authorization|(?:set-)?cookie)(:[ \t]*)[^\n\r'\"]{1,8192}", rf"\1\2{HIDDEN}"),
    _compiled(r"\b(bearer|basic)\s{1,10}(?=[^\s]{0,200}[0-9=._~+/-])[a-z0-9._~+/=-]{8,}", rf"\1 {HIDDEN}"),
    _compiled(r"\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{4,}\.[a-z0-9_-]{4,}", HIDDEN),
    _compiled(
        r"\b(?:whsec_|sk-|gh[opsur]_|github_pat_|glpat-|xox[baprs]-|AIza|AKIA|ASIA)(?=[a-z_/+=-]{0,60}[0-9])[a-z0-9_/+=-]{8,}",
        HIDDEN,
    ),
    _compiled(
        rf"(['\"]?\b[\w-]{{0,40}}{_NAME}['\"]?\s{{0,20}}[=:]\s{{0,20}})({_QUOTED}|[^\s,;&)}}\]'\"]+)",
        rf"\1{HIDDEN}",
    ),
)
# Everything that could steer a terminal or forge a log line; tab and newline are kept.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def redact(text: str, limit: int, *, keep_end: bool = False) -> str:
    """The text without what looks like a secret, control characters made visible, at most ``limit`` long."""
    most = 2 * limit + LONGEST_KEY  # bounds the work on a huge message, and leaves a key whole at the cut
    cut = len(text) > most
    text = text[-most:] if keep_end else text[:most]
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    text = _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
    if len(text) <= limit - (2 if cut else 0):
        return (f"… {text}" if keep_end else f"{text} …") if cut else text
    return "… " + text[-limit + 2 :] if keep_end else text[: limit - 2] + " …"
