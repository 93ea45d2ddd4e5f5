"""What follows a final failure, as the job carries it: a reaper that does not know the app enqueues it, too."""

from __future__ import annotations

import msgspec

from unstuck.protocol.ids import follow_up_id
from unstuck.protocol.job import Failure, Job, NewJob


def after_failure(job: Job, failure: Failure) -> tuple[NewJob, ...]:
    """The job that gets this failure, if the job asks for one. Its id is derived from the lease, so that it is enqueued once."""
    if (asked := job.on_failure) is None:
        return ()
    arguments = (job.id, job.task, msgspec.to_builtins(failure))
    return (
        NewJob(
            queue=asked.queue,
            task=asked.task,
            id=follow_up_id("on_failure", job.lease, asked.queue, asked.task),
            payload=dict(zip(asked.names, arguments, strict=True)),
            priority=asked.priority,
            delay=asked.delay,
            max_attempts=asked.max_attempts,
            max_crashes=asked.max_crashes,
            backoff=asked.backoff,
            lapse_backoff=asked.lapse_backoff,
            timeout=asked.timeout,
            lane=asked.lane,
            parent=job.id,
            trace=job.trace,
            expires=asked.expires,
            on_failure=asked.on_failure,
        ),
    )
