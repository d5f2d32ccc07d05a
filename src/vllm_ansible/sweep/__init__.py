"""Throughput over max_num_seqs and max_num_batched_tokens: which points, what they gave."""
