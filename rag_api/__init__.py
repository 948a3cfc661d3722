"""Graft's borders: settings, wiring, services, the HTTP API, the command line, the worker."""
