"""Runs an ArcadeDB server with one database until it is killed. Its Java lives in this process, so it gets one of its own."""

import os
import signal
import sys

port, http_port, folder, database = sys.argv[1:]
os.chdir(folder)  # where its logs go

import arcadedb_embedded  # noqa: E402

server = arcadedb_embedded.create_server(
    folder,
    os.environ["ARCADEDB_PASSWORD"],
    config={
        "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
        "bolt_port": int(port),
        "http_port": int(http_port),
    },
)
server.start()
server.create_database(database)
signal.pause()
