-- settled: which lease ended this job last, and how.
SELECT settled_fence, settled FROM job WHERE id = :id AND queue = :queue
