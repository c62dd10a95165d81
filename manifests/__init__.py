"""The files a person writes, as data of the package: pipelines, profiles, the weights lockfile, cluster files."""
