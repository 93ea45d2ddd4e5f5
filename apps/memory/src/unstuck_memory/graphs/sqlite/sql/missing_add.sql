INSERT INTO missing (model, since, uid, project, entity) SELECT id, :since, :uid, :project, :entity FROM model
