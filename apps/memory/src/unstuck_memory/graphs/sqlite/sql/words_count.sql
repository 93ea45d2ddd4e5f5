SELECT count(*) FROM words WHERE words MATCH :query
