UPDATE vector SET numbers = :numbers WHERE id = :id
