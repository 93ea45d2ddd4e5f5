-- enqueue_space: let a job stand for a key from now on. The row is locked by enqueue_lock.
UPDATE {schema}.spacing SET job = %(id)s, until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE queue = %(queue)s AND key = %(key)s
RETURNING key
