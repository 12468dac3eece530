"""Whole folders as tar streams: saved and restored with owners, modes, links, holes, attributes and exact times.

`save` reads a folder that nobody changes meanwhile; `restore` believes nothing that it reads. Both take the folder as
an open descriptor and follow no link. Standard library only.
"""
