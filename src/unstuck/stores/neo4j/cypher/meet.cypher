// meet: give queues a node of their own, which lease and pause lock.
UNWIND $queues AS name
MERGE (q:{label}Queue {name: name})
RETURN count(q) AS answer
