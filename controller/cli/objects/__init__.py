"""Objects of the API from the command line: spec files, names, patches, watches."""
