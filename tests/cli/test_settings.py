"""Settings of a worker: where they come from, which of them wins, and what is said about a wrong one."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from support.folders import ROOT

from unstuck import ConfigError, Policy, Rate
from unstuck.cli.settings import _CHECKS, _FIELDS, Settings, _reaper_variables, load
from unstuck.config.policy import RECOVERY

DOCS = ROOT / "docs" / "settings.md"
CANARY = "cAnArY0123456789"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "unstuck.toml") -> Path:
    Path(name).write_text(text)
    return Path(name)


def refusal(environ: dict[str, str] | None = None, path: Path | None = None, **arguments: Any) -> str:
    """What the person who starts a worker is told."""
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {}, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_any_setting_the_defaults_hold() -> None:
    assert load(None, {}) == Settings(
        store=None, app=None, processes=1, concurrency=10, grace=30.0, recovery=None, log_level="INFO",
        metrics_port=None, queues=None, changes={},
    )  # fmt: skip


def test_the_example_of_the_docs_is_a_file_that_loads() -> None:
    [example] = re.findall(r"^```toml\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    write(example)
    settings = load(None, {})

    assert (settings.store, settings.app) == (f"sqlite:///{Path.cwd()}/jobs.db", "shop.tasks:app")
    assert (settings.processes, settings.concurrency, settings.metrics_port) == (2, 20, 9100)
    assert settings.policy("mail", Policy()) == Policy(
        lease=60, heartbeat=15, rate=Rate(20, 60), limit=50, lane_limit=5, retention=30
    )
    assert settings.policy("media", Policy()) == Policy(
        lease=120, heartbeat=12, max_crashes=3, lapse_backoff=(30, 120, 600), stages={"asr": 600, "burnin": 900},
        retention=None,
    )  # fmt: skip


def test_the_docs_name_every_setting_with_its_default() -> None:
    rows = [line.split("|")[1:-1] for line in DOCS.read_text().splitlines() if line.startswith("|")]
    first = {row[0].strip().strip("`"): [cell.strip(" `") for cell in row] for row in rows}
    names = {name if name in ("store", "app") else f"worker.{name}": name for name in _CHECKS}

    assert set(_reaper_variables()) <= set(re.findall(r"`([A-Z_]+)`", DOCS.read_text()))
    assert set(_FIELDS) <= first.keys()
    for key, name in names.items():
        default = RECOVERY if name == "recovery" else getattr(Settings(), name)
        assert first[key][2] in (
            str(default),
            f"{default:g}" if isinstance(default, float) else "none",
            "",
            "the app's",
        )


def test_arguments_win_over_the_environment_over_the_file_over_the_default() -> None:
    write("[worker]\nconcurrency = 20\ngrace = 20\nrecovery = 20\n")
    environ = {"UNSTUCK_CONCURRENCY": "30", "UNSTUCK_GRACE": "30.5"}
    settings = load(None, environ, concurrency=40, grace=None)

    assert (settings.concurrency, settings.grace, settings.recovery, settings.processes) == (40, 30.5, 20, 1)


def test_every_variable_is_read() -> None:
    environ = {
        "UNSTUCK_STORE": "sqlite:///a.db", "UNSTUCK_APP": "a.b:c", "UNSTUCK_PROCESSES": "2", "UNSTUCK_CONCURRENCY": "3",
        "UNSTUCK_GRACE": "4", "UNSTUCK_RECOVERY": "5", "UNSTUCK_LOG_LEVEL": "debug", "UNSTUCK_METRICS_PORT": "9100", "UNSTUCK_MAX_JOBS": "500",
    }  # fmt: skip

    assert load(None, environ) == Settings(
        store=f"sqlite:///{Path.cwd()}/a.db", app="a.b:c", processes=2, concurrency=3, grace=4, recovery=5, log_level="DEBUG",
        metrics_port=9100, store_by="UNSTUCK_STORE", max_jobs=500,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(_reaper_variables()))
def test_a_variable_that_is_set_to_nothing_is_not_set(name: str) -> None:
    assert load(None, {name: " "}, reaping=True) == Settings()


def test_one_line_shows_what_the_environment_overrides(caplog: pytest.LogCaptureFixture) -> None:
    write('store = "sqlite:///a.db?events=all"\n[worker]\nconcurrency = 20\ngrace = 5\nprocesses = 2\n')
    environ = {"UNSTUCK_STORE": "sqlite:///b.db", "UNSTUCK_CONCURRENCY": "30", "UNSTUCK_GRACE": "5.0"}
    with caplog.at_level(logging.INFO, "unstuck.settings"):
        load(None, environ | {"UNSTUCK_PROCESSES": "3"}, processes=4)

    assert [(record.name, record.levelname) for record in caplog.records] == [("unstuck.settings", "INFO")]
    assert caplog.messages == [
        (
            "the environment overrides unstuck.toml: store is 'sqlite:///b.db' by UNSTUCK_STORE, "
            "not 'sqlite:///a.db?events=all'; concurrency is 30 by UNSTUCK_CONCURRENCY, not 20"
        )
    ]


def test_no_secret_is_shown_in_what_is_wrong() -> None:
    write(f'store = "postgres://ann:{CANARY}@host/db"\napp = "postgres://ann:{CANARY}@host/db"')
    told = refusal(
        {
            "UNSTUCK_STORE": f"mysql://ann:{CANARY}@host/db",
            "UNSTUCK_GRACE": f"https://{'a' * 30}:{CANARY}@host",
        }
    )

    assert [place in told for place in ("store", "app is", "UNSTUCK_STORE", "UNSTUCK_GRACE")] == [True] * 4
    assert CANARY not in told


def test_no_secret_is_shown_in_what_is_overridden(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstuck.cli.settings.store_url", lambda url: url)  # that of SQLite has no secrets
    write(f'store = "postgres://ann:{CANARY}@host/db"')
    with caplog.at_level(logging.INFO, "unstuck.settings"):
        load(None, {"UNSTUCK_STORE": f"redis://:{CANARY}@host/0"})

    assert (
        "store is 'redis://:[redacted]@host/0' by UNSTUCK_STORE, not 'postgres://ann:[redacted]@host/db'"
        in caplog.text
    )
    assert CANARY not in caplog.text


@pytest.mark.parametrize("text", ["worker = " + "[" * 10_000, "app = " + "9" * 5000, "app = 0x" + "F" * 5000])
def test_what_is_too_large_to_read_is_refused(text: str) -> None:
    write(text)

    assert len(refusal()) < 200


@pytest.mark.accepts("REC-071", "REAP-070")
@pytest.mark.parametrize(("variable", "text", "seconds"), [
    ("NOBODY_READS_IT", "1", None), ("EMBED_JOB_RECOVERY_INTERVAL", "60000", 60.0),
    ("REAPER_INTERVAL_SEC", "10", 10.0), ("REAPER_INTERVAL_SEC", "300", 300.0), ("REAPER_INTERVAL_SEC", "0", 0.0),
    ("EMBED_JOB_RECOVERY_INTERVAL", "10000", 10.0), ("EMBED_JOB_RECOVERY_INTERVAL", "300000", 300.0),
    ("EMBED_JOB_RECOVERY_INTERVAL", "0", 0.0), ("UNSTUCK_RECOVERY", "10", 10.0), ("UNSTUCK_RECOVERY", "0", 0.0),
])  # fmt: skip
def test_the_interval_of_a_reaper_has_three_names_with_their_own_units(
    variable: str, text: str, seconds: float | None
) -> None:
    """A worker's has one: queues with a profile ask for theirs themselves."""
    assert load(None, {variable: text}, reaping=True).recovery == seconds
    assert load(None, {variable: text}).recovery == (seconds if variable == "UNSTUCK_RECOVERY" else None)


def test_two_names_of_the_recovery_interval_must_agree() -> None:
    message = refusal({"REAPER_INTERVAL_SEC": "60", "EMBED_JOB_RECOVERY_INTERVAL": "60"}, reaping=True)

    assert message == (
        "REAPER_INTERVAL_SEC says 60 s and EMBED_JOB_RECOVERY_INTERVAL says 0.06 s: "
        "set one of them, or both to the same time"
    )
    off = {"REAPER_INTERVAL_SEC": "0", "EMBED_JOB_RECOVERY_INTERVAL": "0"}
    assert load(None, off, reaping=True).recovery == 0
    assert refusal(off | {"EMBED_JOB_RECOVERY_INTERVAL": "60000"}, reaping=True)
    assert refusal(off | {"UNSTUCK_RECOVERY": "60"}, reaping=True)
    assert load(None, off | {"UNSTUCK_RECOVERY": "60"}).recovery == 60


@pytest.mark.parametrize("text", ["60s", "-5", "nan", "inf", "1e3", "1_000", "٣", "0x10", "9" * 400, "true"])
@pytest.mark.parametrize(("variable", "allowed"), [
    ("REAPER_INTERVAL_SEC", "a number from 0 to 86400 (seconds)"), ("UNSTUCK_RECOVERY", "a number from 0 to 86400 (seconds)"),
    ("UNSTUCK_GRACE", "a number from 0 to 86400 (seconds)"),
    ("EMBED_JOB_RECOVERY_INTERVAL", "a whole number from 0 to 86400000"),
    ("UNSTUCK_CONCURRENCY", "a whole number from 1 to 10000"), ("UNSTUCK_PROCESSES", "a whole number from 0 to 256"),
    ("UNSTUCK_METRICS_PORT", "a whole number from 1 to 65535"),
])  # fmt: skip
def test_a_variable_that_is_no_number_in_range_is_refused(variable: str, allowed: str, text: str) -> None:
    message = refusal({variable: text}, reaping=True)

    assert message.startswith(f"{variable} is ")
    assert message.endswith(f": it must be {allowed}")
    assert len(message) < 200


@pytest.mark.parametrize(("environ", "arguments", "told"), [
    ({"UNSTUCK_LOG_LEVEL": "LOUD"}, {}, "UNSTUCK_LOG_LEVEL is 'LOUD': it must be DEBUG, INFO, WARNING or ERROR"),
    ({"UNSTUCK_APP": "shop"}, {}, "UNSTUCK_APP is 'shop': it must be written as MODULE:APP, for example shop.tasks:app"),
    ({"UNSTUCK_STORE": "jobs.db"}, {}, "UNSTUCK_STORE: store 'jobs.db' is not known: "),
    ({}, {"concurrency": 0}, "concurrency is 0: it must be a whole number from 1 to 10000"),
    ({"UNSTUCK_GRACE": "x"}, {"grace": 5.0}, "UNSTUCK_GRACE is 'x': it must be a number from 0 to 86400 (seconds)"),
])  # fmt: skip
def test_a_wrong_word_is_refused_with_its_place(
    environ: dict[str, str], arguments: dict[str, Any], told: str
) -> None:
    assert refusal(environ, **arguments).startswith(told)


def test_everything_wrong_is_reported_at_once() -> None:
    write("""
        sotre = "sqlite:///a.db"
        app = 5
        [worker]
        concurency = 10
        concurrency = "10"
        grace = -1
        [queue.mail]
        lease = 0
        heartbeat = nan
        max_crashes = 2.5
        lapse_backoff = [30, -1]
        rate = { count = 0 }
        limit = true
        stages = { asr = "600" }
        retention = 4000
        retries = 5
        [queue."a b"]
    """)

    assert refusal({"UNSTUCK_PROCESSES": "-1"}).split("; ") == [
        "unstuck.toml: 'sotre' is not known: use store, app, worker, queue",
        "unstuck.toml: app is 5: it must be written as MODULE:APP, for example shop.tasks:app",
        (
            "unstuck.toml: worker: 'concurency' is not known: use processes, concurrency, max_jobs, grace, recovery, log_level, "
            "metrics_port, queues"
        ),
        "unstuck.toml: worker: concurrency is '10': it must be a whole number from 1 to 10000",
        "unstuck.toml: worker: grace is -1: it must be a number from 0 to 86400 (seconds)",
        (
            "unstuck.toml: queue.mail: 'retries' is not known: use lease, heartbeat, max_crashes, lapse_backoff, rate, limit, "
            "lane_limit, stages, factors, retention"
        ),
        "unstuck.toml: queue.mail: lease is 0: it must be a number from 0.5 to 604800 (seconds)",
        "unstuck.toml: queue.mail: heartbeat is nan: it must be a number from 0.05 to 604800 (seconds)",
        "unstuck.toml: queue.mail: max_crashes is 2.5: it must be a whole number from 1 to 1000",
        "unstuck.toml: queue.mail: lapse_backoff is -1: it must be a number from 0 to 31622400 (seconds)",
        "unstuck.toml: queue.mail: rate count is 0: it must be a whole number from 1 to 1000000",
        "unstuck.toml: queue.mail: limit is True: it must be a whole number from 1 to 1000000",
        "unstuck.toml: queue.mail: lease of stage 'asr' is '600': it must be a number from 0.5 to 604800 (seconds)",
        "unstuck.toml: queue.mail: retention is 4000: it must be a number from 0.01 to 3660 (days)",
        (
            "unstuck.toml: queue name 'a b' is not allowed: 1 to 100 letters, digits, '_', '.' or '-', beginning with a "
            "letter or digit"
        ),
        "UNSTUCK_PROCESSES is -1: it must be a whole number from 0 to 256",
    ]


@pytest.mark.parametrize(("text", "told"), [
    ("worker = 5", "unstuck.toml: worker is 5: it must be a table, written [worker]"),
    ("queue = []", "unstuck.toml: queue is []: it must be a table, written [queue]"),
    ("queue.mail = 5", "unstuck.toml: queue.mail is 5: it must be a table, written [queue.mail]"),
    ("queue.mail.stages = 5", "unstuck.toml: queue.mail: stages is 5: it must give a lease for each stage, in seconds"),
    ("queue.mail.rate = 20", "unstuck.toml: queue.mail: rate is 20: it must be written as rate = { count = 20, per = 60 }"),
    ("queue.mail.rate = { per = 60 }", "unstuck.toml: queue.mail: rate is {'per': 60}: it must be written as rate = { cou"),
    ("queue.mail.rate = { count = 2, pre = 6 }", "unstuck.toml: queue.mail: rate is {'count': 2, 'pre': 6}: it must be"),
    ("queue.mail.lapse_backoff = 30", "unstuck.toml: queue.mail: lapse_backoff is 30: it must be a list of seconds"),
    ("queue.mail.retention_from = 'A'", "unstuck.toml: queue.mail: 'retention_from' is not known: use lease, "),
    ("queue.mail.recovery = 5", "unstuck.toml: queue.mail: 'recovery' is not known: use lease, "),
])  # fmt: skip
def test_what_the_file_cannot_set_is_refused(text: str, told: str) -> None:
    write(text)

    assert refusal().startswith(told)


@pytest.mark.parametrize(("text", "line"), [
    (b"[worker]\nconcurrency 20\n", 2), (b"[worker]\n\ngrace = 5 5", 3), (b'store = "a\n', 1), (b"\n\napp = [1,\n2", 4),
    (b"[worker]\ngrace = 1\ngrace = 2", 3), (b"store = 1\napp = '\xff'", 2),
])  # fmt: skip
def test_a_mistake_of_writing_is_reported_with_its_line(text: bytes, line: int) -> None:
    Path("unstuck.toml").write_bytes(text)

    assert re.match(
        rf"unstuck\.toml is (not valid TOML:|not written in UTF-8).* \(at line {line}\b", refusal()
    )


def test_a_file_that_is_named_must_be_there() -> None:
    there = write("[worker]\nprocesses = 7", "other.toml")

    assert load(there, {}).processes == 7
    assert refusal(path=Path("none.toml")) == "none.toml does not exist: name a file that does"
    assert refusal(path=Path()).endswith("cannot be read: Is a directory")
    assert refusal({}, path=write("a = 1", "bad.toml")).startswith("bad.toml: 'a' is not known")


def test_the_file_replaces_what_it_sets_for_a_queue_and_nothing_else() -> None:
    write("[queue.mail]\nlease = 90\n")
    declared = Policy(lease=60, heartbeat=10, max_crashes=4)
    settings = load(None, {})

    assert settings.policy("mail", declared) == Policy(lease=90, heartbeat=10, max_crashes=4)
    assert settings.policy("other", declared) == declared


def test_a_lease_that_does_not_fit_the_declared_heartbeat_is_refused_with_its_place() -> None:
    write("[queue.mail]\nlease = 15\n")

    with pytest.raises(
        ConfigError, match=r"^unstuck\.toml: queue\.mail: lease is 15 s, but with a heartbeat of 10"
    ):
        load(None, {}).policy("mail", Policy(lease=60, heartbeat=10))


def test_the_file_does_not_set_a_retention_that_a_variable_must_set() -> None:
    write("[queue.mail]\nretention = 20\n")

    with pytest.raises(
        ConfigError, match=r"queue\.mail: retention comes from MAIL_DAYS: set that environment variable"
    ):
        load(None, {}).policy("mail", Policy(retention_from="MAIL_DAYS"))


def test_a_queue_that_only_the_file_knows_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    write("[queue.mial]\nlease = 90\n[queue.mail]\nlease = 80\n[queue.x]\n")
    policies = load(None, {}).policies({"mail": Policy(), "sums": Policy()})

    assert policies == {"mail": Policy(lease=80), "sums": Policy()}
    assert caplog.messages == [
        "unstuck.toml: queue.mial: no task of the app uses this queue: did you mean 'mail'?",
        "unstuck.toml: queue.x: no task of the app uses this queue",
    ]


def test_all_queues_that_are_wrong_are_reported_at_once() -> None:
    write("[queue.mail]\nlease = 5\n[queue.sums]\nheartbeat = 30\n")

    with pytest.raises(ConfigError) as caught:
        load(None, {}).policies({"mail": Policy(), "sums": Policy()})

    assert [part[:32] for part in str(caught.value).split("; ")] == [
        "unstuck.toml: queue.mail: lease ",
        "unstuck.toml: queue.sums: lease ",
    ]
