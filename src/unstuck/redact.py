"""redact(): keep secrets and terminal tricks out of what is stored, logged or shown."""

from __future__ import annotations

import re

HIDDEN = "[redacted]"

_TELLING_NAME = r"(?:password|passwd|pwd|secret|token|api[_-]?key|authorization|cookie|private[_-]?key|dsn)"
_SHAPES = (
    (
        re.compile(r"([a-z][a-z0-9+.-]{1,30}://[^\s:/@]{0,100}):[^\s@/]{1,200}@", re.IGNORECASE),
        rf"\1:{HIDDEN}@",
    ),
    (re.compile(r"\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"\b(?:whsec_|sk-|ghp_|xox[bap]-|AKIA)[A-Za-z0-9_/+=-]{8,}"), HIDDEN),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]{0,10000}?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
        ),
        HIDDEN,
    ),
    (
        re.compile(
            rf"(['\"]?\b[\w-]{{0,40}}{_TELLING_NAME}['\"]?\s*[=:]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&)}}\]]+)",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)
# Everything that could steer a terminal or forge a log line; tab and newline are kept.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def redact(text: str, limit: int, *, keep_end: bool = False) -> str:
    """The text without what looks like a secret, control characters made visible, at most ``limit`` long."""
    text = text[-2 * limit :] if keep_end else text[: 2 * limit]  # bounds the work on a huge message
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    text = _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
    if len(text) <= limit:
        return text
    return "… " + text[-limit + 2 :] if keep_end else text[: limit - 2] + " …"
