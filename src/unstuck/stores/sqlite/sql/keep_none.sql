-- keep_none: delete a record if it has this version.
DELETE FROM record WHERE kind = :kind AND name = :record AND version = :version
