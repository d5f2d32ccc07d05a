"""What runs on a node of an allocation of Slurm."""
