// 003_spacing: which job stands for a key, and until when. Older releases know nothing of it.
CREATE CONSTRAINT {label}Spacing_key IF NOT EXISTS FOR (s:{label}Spacing) REQUIRE (s.queue, s.key) IS UNIQUE;
CREATE INDEX {label}Spacing_end IF NOT EXISTS FOR (s:{label}Spacing) ON (s.until);
