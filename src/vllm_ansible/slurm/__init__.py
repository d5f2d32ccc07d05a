"""An allocation of Slurm as the machines of a cluster: asked for, reached, given back."""
