"""From a checked configuration to layers, by attention, mlp and quantization mechanism."""
