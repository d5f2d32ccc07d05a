"""The verbs of the command vllm-ansible, and what a person sees of a run."""
