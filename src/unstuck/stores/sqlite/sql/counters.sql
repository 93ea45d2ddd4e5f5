-- counters: the totals of every queue.
SELECT queue, name, value FROM counter
