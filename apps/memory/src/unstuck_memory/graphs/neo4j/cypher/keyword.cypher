// keyword: current entities by the full-text index, the best first, by their share of what a score could be at most: the weights that
// BM25 gives to the words. Who has a word is counted no further than it matters. The index gives the best first, so that no more are
// looked at than are needed.
MATCH (any:Entity)
WITH count(any) AS total
UNWIND $words AS word
CALL (word) {
  CALL db.index.fulltext.queryNodes('memory_text', word.phrase, {limit: $counted}) YIELD node
  RETURN count(node) AS having
}
WITH sum(word.terms * log(1 + (total - having + 0.5) / (having + 0.5))) AS most
CALL db.index.fulltext.queryNodes('memory_text', $query) YIELD node AS e, score
WHERE e.project = $project AND ($types IS NULL OR e.entity_type IN $types)
WITH e, score / most AS share LIMIT $limit
RETURN e.uid, share ORDER BY share DESC, e.name
