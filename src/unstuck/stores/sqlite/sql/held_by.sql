-- held_by: every lease that the store thinks this owner has.
SELECT queue, id, fence FROM job WHERE status = 'processing' AND owner = :owner
