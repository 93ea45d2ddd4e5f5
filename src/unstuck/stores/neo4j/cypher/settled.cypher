// settled: which lease ended these jobs last, and how.
UNWIND $addresses AS address
MATCH (j:{label} {id: address})
RETURN collect([j.id, j.settled_fence, j.settled]) AS answer
