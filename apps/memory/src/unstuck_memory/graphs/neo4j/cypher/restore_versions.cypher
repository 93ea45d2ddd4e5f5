// restore_versions: archived versions, as they are.
UNWIND $states AS state
CREATE (v:EntityVersion)
SET v = state
