-- standing: the jobs of `front` with where each stands by the turns of its queue.
(SELECT *, turn + step * (row_number() OVER (PARTITION BY queue ORDER BY rank, seq) - 1) AS stands FROM front) AS standing
