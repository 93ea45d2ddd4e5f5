"""What operators are told of a record that somebody edited so that it cannot be read any more."""

from collections.abc import Sequence

import pytest

from unstuck import Filter, Jobs, UnreadableJob
from unstuck.protocol.job import Ref
from unstuck.protocol.store import Store


async def unreadable_is_told(
    store: Store, fine: Sequence[Ref], bad: Ref, caplog: pytest.LogCaptureFixture
) -> None:
    """One among others is left out with a word about it; whoever asks for it alone is told the same as an error."""
    told = f"job {bad.id!r} of queue {bad.queue!r} cannot be read ("
    jobs = Jobs(store)
    for which in (Filter(), Filter(queue=bad.queue), Filter(ids=(bad.id, *(ref.id for ref in fine)))):
        caplog.clear()
        assert [job.ref for job in (await jobs.find(which)).jobs] == list(fine)
        [record] = [one for one in caplog.records if one.name == "unstuck.stores"]
        assert record.getMessage().startswith(told)
        assert record.getMessage().endswith("fix or delete its record in the store; it is left out")
    pages = await jobs.find(Filter(), limit=1), await jobs.find(Filter(), limit=2)
    for page in pages:
        assert page.cursor is not None
        rest = (await jobs.find(Filter(), cursor=page.cursor)).jobs
        assert [job.ref for job in (*page.jobs, *rest)] == list(fine)
    for reading in (jobs.get, jobs.explain):
        with pytest.raises(UnreadableJob) as caught:
            await reading(bad.id)
        assert str(caught.value).startswith(told)
        assert str(caught.value).endswith("fix or delete its record in the store")
