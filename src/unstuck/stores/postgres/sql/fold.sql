-- fold: put counters that have come in many pieces together. What others are folding is left to them.
WITH pieces AS (
    DELETE FROM {schema}.counters WHERE seq = ANY (ARRAY(
        SELECT seq FROM {schema}.counters WHERE (SELECT max(seq) - min(seq) FROM {schema}.counters) > %(many)s
        ORDER BY seq LIMIT 10000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING queue, name, value
)
INSERT INTO {schema}.counters (queue, name, value) SELECT queue, name, sum(value) FROM pieces GROUP BY queue, name
