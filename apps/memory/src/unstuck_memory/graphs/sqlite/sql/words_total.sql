SELECT count(*) FROM words_docsize
