-- read: jobs by their numbers, in that order, all in one answer.
SELECT json_group_array({job}) FROM (
    SELECT job.* FROM json_each(:seqs) AS place JOIN job ON job.seq = place.value ORDER BY place.key
)
