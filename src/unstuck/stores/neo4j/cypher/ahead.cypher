// ahead: how many due jobs of its queue stand before a job in line, counted up to a bound.
CALL () {
  MATCH (mine:{label} {id: $address}) WHERE mine.rank IS NOT NULL
  CALL (mine) {
    MATCH (other:{label})
    USING INDEX SEEK other:{label}(queue, rank, seq)
    WHERE other.queue = mine.queue AND other.rank <= mine.rank AND other.seq IS NOT NULL
      AND (other.rank < mine.rank OR other.seq < mine.seq)
    WITH other LIMIT $bound
    RETURN count(other) AS before
  }
  RETURN sum(before) AS places
}
RETURN places AS answer
