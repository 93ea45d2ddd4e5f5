"""broken_rules(): what must always hold of a store's jobs and does not, by reading every job."""

from __future__ import annotations

from unstuck.protocol.store import Store


async def broken_rules(store: Store) -> list[str]:
    return [finding.what for finding in await store.checkup(deep=True) if finding.broken]
