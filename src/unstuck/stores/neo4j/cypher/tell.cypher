// tell: write routine events.
WITH $told AS told
{told}
RETURN size(told) AS answer
