"""Bills of materials of images, locks and vendored files, and their audit against known vulnerabilities."""
