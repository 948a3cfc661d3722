"""The HTTP side of Graft: schemas, routes, problems, middleware, the application."""
