-- A newer version of an archived entity: what refers to the last row refers to this one from now on.
UPDATE relation
SET source = iif(source = :old, :new, source), target = iif(target = :old, :new, target)
WHERE source = :old OR target = :old
