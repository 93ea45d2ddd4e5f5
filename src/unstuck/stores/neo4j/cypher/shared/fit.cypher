// fit: end the list `found`, of maps that have a job as c, with the one that brings the payloads to so many characters.
// Payloads behind it are not read.
WITH found, reduce(sum = [0, 0], one IN found | CASE
  WHEN sum[1] >= $bytes THEN sum
  ELSE [sum[0] + 1, sum[1] + coalesce(size(toStringOrNull(one.c.payload)), 0)] END)[0] AS many
WITH found[..many] AS found
