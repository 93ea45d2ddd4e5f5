// 001_graph: everything the first release needs.
//
// An entity is a node with the label EntityId, for as long as any version of it is there. While it is current that node has its
// current version, too, and the labels Entity and EntityVersion. What it was before are nodes of their own: EntityVersion.
// So relations and vectors connect entities and not versions, and only current entities have names that must be unique.
// RELATES are current relations, RELATED the earlier versions.
CREATE CONSTRAINT memory_graph IF NOT EXISTS FOR (g:MemoryGraph) REQUIRE g.name IS UNIQUE;

CREATE CONSTRAINT memory_entity_id IF NOT EXISTS FOR (e:EntityId) REQUIRE e.uid IS UNIQUE;
CREATE INDEX memory_entity_id_name IF NOT EXISTS FOR (e:EntityId) ON (e.project, e.name);
CREATE INDEX memory_entity_id_page IF NOT EXISTS FOR (e:EntityId) ON (e.project, e.uid);

CREATE CONSTRAINT memory_entity_name IF NOT EXISTS FOR (e:Entity) REQUIRE (e.project, e.name) IS UNIQUE;
CREATE INDEX memory_entity_folded IF NOT EXISTS FOR (e:Entity) ON (e.project, e.folded);
CREATE INDEX memory_entity_type IF NOT EXISTS FOR (e:Entity) ON (e.project, e.entity_type);
CREATE INDEX memory_entity_models IF NOT EXISTS FOR (e:Entity) ON (e.models);
CREATE FULLTEXT INDEX memory_text IF NOT EXISTS FOR (e:Entity) ON EACH [e.text]
OPTIONS {indexConfig: {`fulltext.analyzer`: 'english', `fulltext.eventually_consistent`: false}};

CREATE CONSTRAINT memory_version IF NOT EXISTS FOR (e:EntityVersion) REQUIRE (e.uid, e.version) IS UNIQUE;
CREATE INDEX memory_version_time IF NOT EXISTS FOR (e:EntityVersion) ON (e.project, e.name, e.valid_from);
CREATE INDEX memory_version_archived IF NOT EXISTS FOR (e:EntityVersion) ON (e.project, e.valid_to);

CREATE CONSTRAINT memory_relation_key IF NOT EXISTS FOR ()-[r:RELATES]-() REQUIRE (r.from_uid, r.to_uid, r.relation_type) IS UNIQUE;
CREATE CONSTRAINT memory_relation_uid IF NOT EXISTS FOR ()-[r:RELATES]-() REQUIRE r.uid IS UNIQUE;
CREATE INDEX memory_relation_project IF NOT EXISTS FOR ()-[r:RELATES]-() ON (r.project);
CREATE CONSTRAINT memory_related_version IF NOT EXISTS FOR ()-[r:RELATED]-() REQUIRE (r.uid, r.version) IS UNIQUE;
CREATE INDEX memory_related_key IF NOT EXISTS FOR ()-[r:RELATED]-() ON (r.from_uid, r.to_uid, r.relation_type);
CREATE INDEX memory_related_archived IF NOT EXISTS FOR ()-[r:RELATED]-() ON (r.project, r.valid_to);

CREATE CONSTRAINT memory_model IF NOT EXISTS FOR (m:EmbeddingModel) REQUIRE (m.name, m.dimension) IS UNIQUE;
CREATE CONSTRAINT memory_model_number IF NOT EXISTS FOR (m:EmbeddingModel) REQUIRE m.number IS UNIQUE;
CREATE CONSTRAINT memory_vector IF NOT EXISTS FOR (v:EmbeddingVector) REQUIRE (v.model, v.hash) IS UNIQUE;
CREATE INDEX memory_vector_unused IF NOT EXISTS FOR (v:EmbeddingVector) ON (v.unused_since);
