// archive_relations: end the current versions of relations whose ends are locked.
UNWIND $ends AS end
MATCH (a)-[r:RELATES {uid: end.uid}]->(b)
CREATE (a)-[p:RELATED]->(b)
SET p = properties(r), p.valid_to = end.valid_to
DELETE r
