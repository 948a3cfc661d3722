"""Bytes of a file go in; its text and what is known about it come out, inside a child process.

Imports nothing of Graft's other packages, so that a child starts fast and stays small.
"""
