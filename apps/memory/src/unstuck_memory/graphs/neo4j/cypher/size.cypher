// size: what is current, and how many versions are archived.
RETURN
  COUNT { MATCH (e:Entity) WHERE e.project = $project AND e.name > '' },
  COUNT { MATCH ()-[r:RELATES]->() WHERE r.project = $project },
  COUNT { MATCH (v:EntityVersion) WHERE v.project = $project AND v.valid_to > 0 }
    + COUNT { MATCH ()-[r:RELATED]->() WHERE r.project = $project AND r.valid_to > 0 }
