-- blocking: who has locked these tables in such a mode, or waits to and so stands in line before us; and without tables of
-- their own, those whom the ones who wait are waiting for. Who is the next in line for a single row has such a lock, too, but
-- of another type.
WITH line AS (
    SELECT lock.pid, array_agg(DISTINCT class.relname::text) AS tables, NOT bool_and(lock.granted) AS waits
    FROM pg_locks AS lock JOIN pg_class AS class ON class.oid = lock.relation
    WHERE lock.locktype = 'relation' AND lock.mode = ANY (%(modes)s) AND lock.pid <> pg_backend_pid()
        AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND class.oid::text = ANY (SELECT to_regclass(name)::oid::text FROM unnest(%(tables)s::text[]) AS name)
    GROUP BY lock.pid
),
before AS (
    SELECT DISTINCT ON (pid) pid, tables, waits FROM (
        SELECT pid, tables, waits FROM line
        UNION ALL
        SELECT unnest(pg_blocking_pids(pid)), '{}', false FROM line WHERE waits
    ) AS each
    ORDER BY pid, tables DESC
)
SELECT
    {who},
    before.tables,
    before.waits
FROM before JOIN pg_stat_activity AS activity ON activity.pid = before.pid
ORDER BY activity.xact_start, activity.pid
