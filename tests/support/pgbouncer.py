"""PgBouncer in front of a private PostgreSQL server, in transaction mode."""

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

import psycopg

from support.postgres import PASSWORD, Postgres, url
from support.servers import Server, missing
from support.users import unprivileged

SETTINGS = """\
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
default_pool_size = 20
max_client_conn = 400
auth_type = scram-sha-256
auth_file = {users}
admin_users = postgres
"""


class PgBouncer(Server):
    """Start it while the server has a port. Between transactions, a session may change its connection."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._program = _program()
        # Within the server's folder, so that it is removed with it.
        folder = server.folder / f"pgbouncer-{uuid.uuid4().hex[:8]}"
        super().__init__(self._argv, self._answers, folder, user=unprivileged())
        folder.chmod(0o711)

    def url(self, database: str = "postgres") -> str:
        return url(self.port, database)

    def _argv(self, port: int, data_dir: Path) -> Sequence[str]:
        users, settings = data_dir / "users.txt", data_dir / "pgbouncer.ini"
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings.write_text(SETTINGS.format(server=self._server.port, port=port, users=users))
        for file in (users, settings):
            file.chmod(0o644)  # the folder is closed to others
        return [self._program, str(settings)]

    def _answers(self, port: int) -> bool:
        try:
            # Its own console answers even while the server behind it is down.
            with psycopg.connect(url(port, "pgbouncer"), autocommit=True, connect_timeout=1):
                return True
        except psycopg.OperationalError:
            return False


def _program() -> str:
    # Debian puts it where only root's PATH may look.
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return found or missing("PgBouncer", "apt-get install pgbouncer")
