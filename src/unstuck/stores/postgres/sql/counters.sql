-- counters: the totals of every queue.
SELECT queue, name, sum(value)::bigint FROM {schema}.counters GROUP BY queue, name
