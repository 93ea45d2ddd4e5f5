"""The private Redis servers: they start empty, keep what they acknowledged, and end with the test."""

from support.redis import Redis


def test_it_starts_pauses_dies_and_comes_back_with_its_data(redis_server: Redis) -> None:
    assert redis_server.command("SET", "mark", "here") == "+OK\r\n"

    redis_server.kill9()
    assert not redis_server.running
    redis_server.start()

    assert "here" in redis_server.command("GET", "mark")
    redis_server.command("DEL", "mark")


def test_settings_can_be_given_and_nothing_is_left_behind() -> None:
    with Redis("redis", settings={"maxmemory-policy": "allkeys-lru", "appendonly": "no"}) as server:
        assert "maxmemory_policy:allkeys-lru" in server.command("INFO", "memory")
        assert server.folder.exists()

    assert not server.folder.exists()
