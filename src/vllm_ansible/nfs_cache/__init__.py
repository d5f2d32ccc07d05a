"""What the role nfs_cache decides on the controller: mount, files, and what a proof is worth."""
