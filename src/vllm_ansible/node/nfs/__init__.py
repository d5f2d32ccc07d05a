"""A directory that is mounted by NFS, and the cache of it on a disk of this host."""
