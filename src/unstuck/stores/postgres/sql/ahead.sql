-- ahead: how many due jobs of its queue stand before a job in line, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM (SELECT queue, rank, seq FROM {schema}.jobs WHERE id = %(id)s AND queue = %(queue)s) AS mine
    JOIN {schema}.jobs AS other ON other.queue = mine.queue AND other.rank IS NOT NULL
        AND (other.rank, other.seq) < (mine.rank, mine.seq)
    LIMIT %(bound)s
) AS before
