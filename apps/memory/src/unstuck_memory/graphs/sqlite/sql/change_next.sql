UPDATE last_change SET number = number + 1 RETURNING number
