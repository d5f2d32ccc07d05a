"""A module for each kind of accelerator whose devices a host may have."""
