-- sessions: those that hold more than a reader's lock on tables of ours, in a transaction that has been open for so long. What
-- another user's session does is not shown to everybody: then neither its state nor its age is known.
SELECT
    {who},
    array_agg(DISTINCT class.relname::text)
FROM pg_locks AS held
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
JOIN pg_class AS class ON class.oid = held.relation AND class.relkind IN ('r', 'p')
-- Who reads, vacuums, analyzes or builds an index concurrently is in the way of no row.
WHERE held.granted AND held.mode NOT IN ('AccessShareLock', 'ShareUpdateExclusiveLock') AND held.pid <> pg_backend_pid()
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND class.relnamespace = to_regnamespace(%(schema)s)
    AND activity.xact_start <= clock_timestamp() - make_interval(secs => %(seconds)s)
GROUP BY activity.pid, activity.usename, activity.application_name, activity.state, activity.xact_start
ORDER BY activity.xact_start, activity.pid
