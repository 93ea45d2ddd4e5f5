SELECT {entity}
FROM json_each(:uids) AS asked CROSS JOIN entity ON entity.uid = asked.value AND entity.valid_to IS NULL
ORDER BY asked.key
