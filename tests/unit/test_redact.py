"""What must not be stored, logged or shown, and what must stay as it was said."""

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.text.redact import HIDDEN, redact

CANARY = "cAnArY0123456789"
LIMIT = 8192
PEM = "-----BEGIN {kind}PRIVATE KEY-----{eol}{body}{eol}-----END {kind}PRIVATE KEY-----"


def shown(text: str) -> str:
    return redact(text, LIMIT)


@pytest.mark.parametrize(
    "name",
    [
        "password", "PASSWORD", "Password", "passwd", "pwd", "PGPASSWORD", "db_password", "user-password", "secret",
        "client_secret", "token", "access_token", "refreshToken", "X-Auth-Token", "api_key", "apikey", "api-key",
        "OPENAI_API_KEY", "x-api-key", "authorization", "cookie", "Set-Cookie", "private_key", "privateKey", "dsn",
        "SENTRY_DSN",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "form", ["{}={}", "{}: {}", "{} = '{}'", '"{}": "{}"', "{{'{}': '{}'}}", "?{}={}&page=2"]
)
def test_a_value_is_hidden_because_of_its_name(name: str, form: str) -> None:
    told = shown(form.format(name, CANARY))

    assert CANARY not in told
    assert (name in told, HIDDEN in told) == (True, True)


@pytest.mark.parametrize("name", ["SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "SECRET_KEY_BASE"])
def test_a_name_that_goes_on_after_the_secret_word_is_secret_too(name: str) -> None:
    assert CANARY not in shown(f"{name}={CANARY}")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "postgresql://unstuck:{}@db:5432/jobs refused",
            "postgresql://unstuck:[redacted]@db:5432/jobs refused",
        ),
        ("redis://:{}@cache:6379/0", "redis://:[redacted]@cache:6379/0"),
        ("neo4j+s://neo4j:{}@graph", "neo4j+s://neo4j:[redacted]@graph"),
        ("HTTPS://ann:{}@example.com/a?b=c", "HTTPS://ann:[redacted]@example.com/a?b=c"),
        ("[amqp://a:{}@b, amqp://c:{}@d]", "[amqp://a:[redacted]@b, amqp://c:[redacted]@d]"),
    ],
)
def test_a_password_in_an_address_is_hidden_and_the_rest_is_kept(text: str, kept: str) -> None:
    assert shown(text.replace("{}", CANARY)) == kept


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://unstuck:p@{CANARY}@db:5432/jobs",
        f"smtp://ann@example.com:{CANARY}@mail.example.com:587",
        f"postgresql://unstuck:{CANARY * 20}@db/jobs",
        f"redis://ann:a/{CANARY}@cache:6379/0",
        f"redis://:1/{CANARY}@cache:6379/0",
    ],
    ids=[
        "an @ inside",
        "an e-mail address as user",
        "320 characters",
        "a slash inside",
        "a slash behind a digit",
    ],
)
def test_an_unusual_password_in_an_address_is_hidden_in_full(text: str) -> None:
    assert CANARY not in shown(text)


@pytest.mark.parametrize(
    "secret",
    [
        f"Bearer {CANARY}", f"bearer   {CANARY}", f"Basic {CANARY}==", f"whsec_{CANARY}", f"sk-{CANARY}",
        f"sk-proj-{CANARY}", f"ghp_{CANARY}", f"xoxb-1-{CANARY}", f"xoxp-{CANARY}", "AKIA" + "CANARY0123456789",
    ],
)  # fmt: skip
def test_a_secret_is_hidden_by_its_shape(secret: str) -> None:
    told = shown(f"the answer to {secret} was 401")

    assert "canary" not in told.lower()
    assert told.endswith(f"{HIDDEN} was 401")


@pytest.mark.parametrize(
    "secret",
    [
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.{CANARY}_{CANARY}", f"github_pat_{CANARY}_{CANARY}",
        f"gho_{CANARY}", f"ghs_{CANARY}", f"glpat-{CANARY}", f"AIza{CANARY}{CANARY}abc", "ASIA" + "CANARY0123456789",
    ],
    ids=["JSON web token", "GitHub, new", "GitHub, OAuth", "GitHub, server", "GitLab", "Google", "AWS, for a while"],
)  # fmt: skip
def test_the_keys_of_other_clouds_are_hidden_by_their_shape(secret: str) -> None:
    assert "canary" not in shown(f"the answer to {secret} was 401").lower()


@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "Token", "ApiKey", "Negotiate", "Digest"])
def test_an_authorization_header_is_hidden_whatever_its_scheme(scheme: str) -> None:
    assert CANARY not in shown(f"Authorization: {scheme} {CANARY}\nAccept: */*")


def test_all_of_a_cookie_header_is_hidden() -> None:
    told = shown(f"Cookie: theme=dark; sid={CANARY}; lang=en\nAccept: */*")

    assert CANARY not in told
    assert told.endswith("\nAccept: */*")


def test_an_escaped_quote_does_not_end_a_secret() -> None:
    assert CANARY not in shown(f'{{"password": "a\\"{CANARY}"}}')


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("eol", ["\n", "\r\n", "\\n"])
def test_a_private_key_is_hidden_as_a_whole(kind: str, eol: str) -> None:
    key = PEM.format(kind=kind, eol=eol, body=eol.join([CANARY] * 100))

    assert shown(f"before {key} after") == f"before {HIDDEN} after"


def test_a_private_key_of_16384_bits_is_hidden_as_a_whole() -> None:
    key = PEM.format(kind="RSA ", eol="\n", body="\n".join([CANARY * 4] * 197))

    assert shown(f"before {key} after") == f"before {HIDDEN} after"


def test_a_private_key_that_was_cut_is_hidden_up_to_the_end() -> None:
    assert shown(f"before -----BEGIN PRIVATE KEY-----\n{CANARY}\n{CANARY[:7]}") == f"before {HIDDEN}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "connection to 10.0.0.1:5432 refused after 3.5 s",
        "KeyError: 'token'",
        "the token was wrong: it had ended",
        "Tokenizer: unexpected end of input\n\tat line 3",
        "see https://example.com:8443/a/b?c=d#e and mailto:ann@example.com",
        "http://example.com:8080/@ann/posts",
        "max_tokens: 4096 is too many",
        "basic needs, bearer of news, the secret is out",
        "task-9 sk-8 ask-me-anything",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "Grüße, 你好, 🙂, naïve — “quoted” …",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert shown(text) == text


@given(
    st.text(
        st.sampled_from(string.ascii_letters + string.digits + " .,;!?()[]{}<>*+/\n\t'\"äß你🙂"), max_size=500
    )
)
def test_text_without_marks_of_a_secret_is_left_alone(text: str) -> None:
    plain = text.replace("asic", "").replace("earer", "").replace("AKIA", "").replace("hp_", "")

    assert shown(plain) == plain


@pytest.mark.parametrize(
    "character",
    [
        "\0",
        "\a",
        "\b",
        "\r",
        "\x1b",
        "\x7f",
        "\x85",
        "\x9b",
        "\u2028",
        "\u2029",
        "\u202e",
        "\u2066",
        "\u2069",
        "\ud800",
    ],
    ids=ascii,
)
def test_a_character_that_steers_a_terminal_is_made_visible(character: str) -> None:
    told = shown(f"a{character}b")

    assert told == f"a\\x{ord(character):02x}b"
    assert told.isprintable()


@given(st.text(st.characters(), max_size=300))
def test_what_is_shown_can_be_printed_and_stored_everywhere(text: str) -> None:
    told = shown(text)

    steering = [c for c in told if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    assert steering == []
    assert told.encode().decode() == told


@given(text=st.text(max_size=400), limit=st.integers(10, 100), keep_end=st.booleans())
def test_what_is_shown_is_never_longer_than_the_limit(text: str, limit: int, keep_end: bool) -> None:
    assert len(redact(text, limit, keep_end=keep_end)) <= limit


def test_of_a_long_text_the_beginning_is_kept() -> None:
    assert redact("a" * 90 + "b" * 90, 100) == "a" * 90 + "b" * 8 + " …"


def test_of_a_long_stack_the_end_is_kept() -> None:
    assert redact("a" * 90 + "b" * 90, 100, keep_end=True) == "… " + "a" * 8 + "b" * 90


@pytest.mark.parametrize("keep_end", [False, True])
def test_a_text_that_was_cut_is_marked_even_if_little_is_left_of_it(keep_end: bool) -> None:
    key = PEM.format(kind="", eol="\n", body="x" * 1250)

    told = redact(f"{'a' * 600}{key}{'b' * 600}", 1000, keep_end=keep_end)

    assert HIDDEN in told
    assert "…" in told


@pytest.mark.parametrize("offset", range(0, 60, 3))
@pytest.mark.parametrize("keep_end", [False, True])
def test_a_secret_is_hidden_wherever_the_text_is_cut(offset: int, keep_end: bool) -> None:
    filling = "." * (LIMIT - 60 + offset)

    told = redact(
        f"{filling} password={CANARY} {filling} password={CANARY} {filling}", LIMIT, keep_end=keep_end
    )

    assert CANARY[:8] not in told
    assert CANARY[-8:] not in told


@pytest.mark.parametrize(
    "piece",
    [
        "x", " ", "\x1b", "token", "password ", 'password="', "password=" + " " * 50, "a://a:", "a://" + "b" * 99, "-w", "_",
        "bearer ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN " + "A " * 40, "\ud800", "sk-", "eyJ.",
    ],
    ids=ascii,
)  # fmt: skip
def test_ten_hostile_megabytes_are_dealt_with_at_once(piece: str) -> None:
    text = piece * (10_000_000 // len(piece))

    began = time.thread_time()
    ends = redact(text, LIMIT), redact(text, 2 * LIMIT, keep_end=True)
    took = time.thread_time() - began

    assert (len(ends[0]) <= LIMIT, len(ends[1]) <= 2 * LIMIT) == (True, True)
    assert took < 2.0
