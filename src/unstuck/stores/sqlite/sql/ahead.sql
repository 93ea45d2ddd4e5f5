-- ahead: how many due jobs of its queue stand before a job in line, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM job AS other, (SELECT queue, rank, seq FROM job WHERE id = :id AND queue = :queue) AS mine
    WHERE other.queue = mine.queue AND other.rank IS NOT NULL
        AND other.rank <= mine.rank AND (other.rank < mine.rank OR other.seq < mine.seq)
    LIMIT :bound
)
