"""The Python layer of vllm-ansible; whatever lies in node/ travels to hosts with the modules."""
