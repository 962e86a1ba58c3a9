"""Kernel families: one file a family, each gives a transform script for a kernel, or None for plain loops."""
