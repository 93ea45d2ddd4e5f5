-- give_back: return tokens that were not used, of those that were taken together.
DELETE FROM {schema}.tokens WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.tokens WHERE bucket = %(bucket)s AND stamp = %(stamp)s LIMIT %(count)s FOR UPDATE SKIP LOCKED
))
