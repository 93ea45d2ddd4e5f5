-- tally: add to counters of a queue.
INSERT INTO {schema}.counters (queue, name, value)
SELECT %(queue)s, key, value::bigint FROM json_each_text(%(added)s::json)
