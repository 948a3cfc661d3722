"""What Graft does, in plain Python: the HTTP routes, the CLI and the worker call these alike."""
