-- delete: remove finished jobs, the oldest first.
DELETE FROM job
WHERE seq IN (SELECT seq FROM job WHERE finished_at IS NOT NULL AND {matching} ORDER BY finished_at LIMIT :limit)
RETURNING queue, id
