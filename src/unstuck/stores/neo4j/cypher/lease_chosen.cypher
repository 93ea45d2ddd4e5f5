// lease_chosen: take jobs from a line that was read in this transaction, which holds the queues' locks.
UNWIND $chosen AS row
MATCH (c:{label} {id: row.address})
WITH collect({c: c, lease: row.lease, stands: 0}) AS found
{fit}
{take}
RETURN collect([stood, {job}]) AS answer
